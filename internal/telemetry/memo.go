package telemetry

import "sync"

// memo caches the metrics of label values. Every request counts, and looking up a metric by its
// labels costs more than counting. memo is safe for concurrent use.
type memo[K comparable, V any] struct {
	find  func(K) V // may be called more than once for a key, with the same result
	known sync.Map  // from K to V
}

// get returns the value for key. It allocates only the first time.
func (m *memo[K, V]) get(key K) V {
	if v, ok := m.known.Load(key); ok {
		return v.(V) //nolint:forcetypeassert // nothing else is stored
	}
	v := m.find(key)
	m.known.Store(key, v)
	return v
}

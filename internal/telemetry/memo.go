package telemetry

import "sync"

// memo remembers the series that stand for some labels: to find one among the
// others costs more than to count in it, and happens with every request. It is
// safe for concurrent use.
type memo[K comparable, V any] struct {
	find  func(K) V // may be called more than once for a key, with the same result
	known sync.Map  // of V by K
}

// get returns what stands for key. It allocates only the first time.
func (m *memo[K, V]) get(key K) V {
	if v, ok := m.known.Load(key); ok {
		return v.(V) //nolint:forcetypeassert // nothing else is stored
	}
	v := m.find(key)
	m.known.Store(key, v)
	return v
}

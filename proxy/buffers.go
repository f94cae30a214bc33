package proxy

import "sync"

const copyBuffer = 32 << 10 // bytes

// buffers lends the memory that bodies are copied through.
type buffers struct{ pool sync.Pool }

func newBuffers() *buffers {
	return &buffers{sync.Pool{New: func() any { return new([copyBuffer]byte) }}}
}

// Get returns a buffer.
func (b *buffers) Get() *[copyBuffer]byte {
	buffer, _ := b.pool.Get().(*[copyBuffer]byte)
	return buffer
}

// Put takes a buffer back.
func (b *buffers) Put(buffer *[copyBuffer]byte) { b.pool.Put(buffer) }

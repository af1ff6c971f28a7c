package device

import (
	"fmt"
	"unsafe"
)

// Purpose says what a block of memory is for, so that a plan and the truth can
// be compared line by line.
type Purpose int

const (
	Parameters Purpose = iota
	MainGradients
	Optimizer
	Activations
	Communication
	Workspace
	Purposes
)

var purposeNames = [Purposes]string{"parameters", "main gradients", "optimizer", "activations", "communication", "workspace"}

func (p Purpose) String() string { return purposeNames[p] }

const (
	alignment    = 64       // bytes, of every block
	gpuAlignment = 256      // the same on a GPU: a matmul library checks up to this, and may sum otherwise below it
	segmentSize  = 64 << 20 // bytes asked of the backend at least
)

// Arena hands out device memory: best fit over large segments, neighbours
// merged when freed. Used by the one goroutine of its Device.
type Arena struct {
	Peaked func() // called at each new peak of allocated memory; may be nil

	device    *Device
	align     int64 // bytes, of every block
	own       source
	stretches []*stretch
	open      *stretch // where memory comes from now; nil: the arena's own
	used      map[unsafe.Pointer]*block

	now, peak        [Purposes]int64
	total, totalPeak int64
	reserved         int64
}

// block is a stretch of a segment; prev and next are its neighbours there.
type block struct {
	at         unsafe.Pointer
	bytes      int64
	free       bool
	purpose    Purpose
	holds      Tensor // its dtype and shape
	prev, next *block
	stretch    *stretch // nil: it is in a segment of the arena's own
	graph      *Graph   // works on it; nil: none does
	index      int      // among the free blocks of its source, while it is free
}

// source is segments that memory is taken from.
type source struct {
	segments []*block // first block of each
	free     []*block // in no order
}

func (s *source) release(b *block) {
	b.free, b.graph, b.index = true, nil, len(s.free)
	s.free = append(s.free, b)
}

func (s *source) claim(b *block) {
	last := s.free[len(s.free)-1]
	s.free[b.index], last.index = last, b.index
	s.free, b.free = s.free[:len(s.free)-1], false
}

// bestFit is the smallest free block of at least so many bytes, of equal ones the lowest.
func (s *source) bestFit(bytes int64) (best *block) {
	for _, b := range s.free {
		if b.bytes >= bytes && (best == nil || b.bytes < best.bytes || b.bytes == best.bytes && uintptr(b.at) < uintptr(best.at)) {
			best = b
		}
	}
	return best
}

func newArena(d *Device) *Arena {
	a := &Arena{device: d, align: alignment, used: map[unsafe.Pointer]*block{}}
	if d.IsGPU() {
		a.align = gpuAlignment
	}
	return a
}

// Alloc returns a contiguous tensor with undefined contents. When the device
// has no memory left it panics with OutOfMemory, which the rank's edge turns
// into an error: nothing between can continue without the tensor.
func (a *Arena) Alloc(p Purpose, dtype DType, shape ...int64) Tensor {
	t := View(nil, dtype, shape...)
	t.Data = a.take(max(a.align, (t.Bytes()+a.align-1)&^(a.align-1)), p, t)
	return t
}

// Zeroed is Alloc with every element 0.
func (a *Arena) Zeroed(p Purpose, dtype DType, shape ...int64) Tensor {
	t := a.Alloc(p, dtype, shape...)
	a.device.Fill(t, 0)
	return t
}

// Free returns the block that starts at t; t must be as Alloc gave it.
func (a *Arena) Free(t Tensor) {
	b := a.used[t.Data]
	if b == nil {
		panic(fmt.Sprintf("device: %v cannot be freed: it is not a block of this arena", t))
	}
	if b.graph != nil && b.graph.taken != nil {
		panic(fmt.Sprintf("device: %v cannot be freed: a graph still uses it", t))
	}
	delete(a.used, t.Data)
	a.count(b.purpose, -b.bytes)
	from := a.sourceOf(b)
	if n := b.next; n != nil && n.free {
		from.claim(n)
		b.absorb(n)
	}
	if p := b.prev; p != nil && p.free {
		p.absorb(b)
		return
	}
	from.release(b)
}

func (b *block) absorb(next *block) {
	b.bytes += next.bytes
	b.next = next.next
	if b.next != nil {
		b.next.prev = b
	}
}

func (a *Arena) take(bytes int64, p Purpose, t Tensor) unsafe.Pointer {
	from := a.source()
	best := from.bestFit(bytes)
	if best == nil {
		best = a.grow(bytes, p, t)
	}
	from.claim(best)
	if rest := best.bytes - bytes; rest > 0 {
		tail := &block{at: unsafe.Add(best.at, bytes), bytes: rest, prev: best, next: best.next, stretch: best.stretch}
		from.release(tail)
		if tail.next != nil {
			tail.next.prev = tail
		}
		best.next, best.bytes = tail, bytes
	}
	best.purpose, best.holds = p, t
	a.used[best.at] = best
	a.count(p, bytes)
	return best.at
}

// count adds bytes to what is allocated for p.
func (a *Arena) count(p Purpose, bytes int64) {
	a.now[p] += bytes
	a.peak[p] = max(a.peak[p], a.now[p])
	if a.total += bytes; a.total <= a.totalPeak {
		return
	}
	a.totalPeak = a.total
	if a.Peaked != nil {
		a.Peaked()
	}
}

func (a *Arena) grow(bytes int64, p Purpose, t Tensor) *block {
	size := max(bytes, segmentSize)
	at, err := a.device.backend.Alloc(size)
	if err != nil && size > bytes { // the rest of the memory is smaller than a segment
		size = bytes
		at, err = a.device.backend.Alloc(size)
	}
	if err != nil {
		panic(a.lack(bytes, p, t, err))
	}
	a.reserved += size
	b, from := &block{at: at, bytes: size, stretch: a.open}, a.source()
	from.segments = append(from.segments, b)
	from.release(b)
	return b
}

// Usage is memory in bytes.
type Usage struct {
	Now, Peak      [Purposes]int64
	Allocated, Max int64 // over all purposes
	Reserved       int64 // asked of the backend
	Blocks         int64 // live
}

// Usage reports what is allocated now and the peaks.
func (a *Arena) Usage() Usage {
	return Usage{a.now, a.peak, a.total, a.totalPeak, a.reserved, int64(len(a.used))}
}

// Close gives every segment back. No tensor of the arena, and no graph, may be used afterwards.
func (a *Arena) Close() {
	a.device.dropGraphs()
	for _, first := range a.all() {
		bytes := int64(0)
		for b := first; b != nil; b = b.next {
			bytes += b.bytes
		}
		a.device.backend.Free(first.at, bytes)
	}
	*a = *newArena(a.device)
}

// Scope is a set of tensors that are freed together: what one function needs
// for a while, or what one layer saves for its backward.
type Scope struct {
	arena   *Arena
	purpose Purpose
	tensors []Tensor
}

// Scope opens an empty scope.
func (a *Arena) Scope(p Purpose) *Scope { return &Scope{arena: a, purpose: p} }

// Alloc is Arena.Alloc into the scope.
func (s *Scope) Alloc(dtype DType, shape ...int64) Tensor {
	t := s.arena.Alloc(s.purpose, dtype, shape...)
	s.tensors = append(s.tensors, t)
	return t
}

// Like allocates with t's dtype and shape.
func (s *Scope) Like(t Tensor) Tensor { return s.Alloc(t.DType, t.Dims()...) }

// Release frees the scope's tensors. The scope can be used again.
func (s *Scope) Release() {
	for i := len(s.tensors) - 1; i >= 0; i-- {
		s.arena.Free(s.tensors[i])
	}
	s.tensors = s.tensors[:0]
}

// Free releases one tensor of the scope early.
func (s *Scope) Free(t Tensor) {
	for i := len(s.tensors) - 1; i >= 0; i-- {
		if s.tensors[i].Data == t.Data {
			s.arena.Free(t)
			s.tensors = append(s.tensors[:i], s.tensors[i+1:]...)
			return
		}
	}
	panic(fmt.Sprintf("device: %v is not in this scope", t))
}

// Has reports whether t was allocated here and not freed.
func (s *Scope) Has(t Tensor) bool {
	for _, h := range s.tensors {
		if h.Data == t.Data {
			return true
		}
	}
	return false
}

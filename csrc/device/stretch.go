package device

// stretch is memory that a graph's work alone is given, segments of its own: what is free
// in it now is written the next time the graph runs.
type stretch struct {
	source
	arena *Arena
	idle  int64 // bytes that count as activations while nobody works here
}

func (a *Arena) stretch() *stretch {
	s := &stretch{arena: a}
	a.stretches = append(a.stretches, s)
	return s
}

// enter lets the arena take from the stretch until the function returned is called.
func (s *stretch) enter() (leave func()) {
	a := s.arena
	a.count(Activations, -s.idle)
	a.open = s
	return func() {
		a.open = nil
		s.idle = s.left()
		a.count(Activations, s.idle)
	}
}

// idle is what stretches keep that nobody works in now, in bytes.
func (a *Arena) idle() (bytes int64) {
	for _, s := range a.stretches {
		if s != a.open {
			bytes += s.idle
		}
	}
	return bytes
}

// left is the bytes that nobody holds.
func (s *source) left() (bytes int64) {
	for _, b := range s.free {
		bytes += b.bytes
	}
	return bytes
}

// source is where memory comes from now.
func (a *Arena) source() *source {
	if a.open != nil {
		return &a.open.source
	}
	return &a.own
}

// sourceOf is where a block came from.
func (a *Arena) sourceOf(b *block) *source {
	if b.stretch != nil {
		return &b.stretch.source
	}
	return &a.own
}

// all is every segment.
func (a *Arena) all() []*block {
	list := append([]*block(nil), a.own.segments...)
	for _, s := range a.stretches {
		list = append(list, s.segments...)
	}
	return list
}

// holder is the block in use that an address lies in; nil: none.
func (a *Arena) holder(address uintptr) *block {
	for _, first := range a.all() {
		for b := first; b != nil; b = b.next {
			if from := uintptr(b.at); !b.free && address >= from && address < from+uintptr(b.bytes) {
				return b
			}
		}
	}
	return nil
}

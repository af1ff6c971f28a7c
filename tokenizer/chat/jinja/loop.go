package jinja

// loopContext is the variable loop (jinja2.runtime.LoopContext).
type loopContext struct {
	items       Value
	advance     func() Value
	recurse     *recursion
	depth0      int
	index0      int
	size        int // -1: not known yet
	after       Value
	current     Value
	before      Value
	lastChanged Value
	hasAfter    bool
}

func newLoop(r *run, items Value, recurse *recursion, depth int) *loopContext {
	r.alloc(128)
	return &loopContext{items: items, advance: r.iterate(items), recurse: recurse, depth0: depth, index0: -1, size: -1}
}

// next is the next item, nil at the end.
func (l *loopContext) next(r *run) Value {
	v := l.after
	if !l.hasAfter {
		v = l.advance()
	}
	l.after, l.hasAfter = nil, false
	if v == nil {
		return nil
	}
	l.index0++
	l.before, l.current = l.current, v
	return v
}

// peek is the item after this one, nil at the end.
func (l *loopContext) peek() Value {
	if !l.hasAfter {
		l.after = l.advance()
		l.hasAfter = l.after != nil
	}
	return l.after
}

// length is how many items there are; those of a generator are taken to count them.
func (l *loopContext) length(r *run) int {
	if l.size >= 0 {
		return l.size
	}
	if n, has := r.length(l.items); has {
		l.size = n
		return n
	}
	rest := r.all(&iterator{"", l.advance})
	l.advance = r.iterate(&List{items: rest})
	l.size = len(rest) + l.index0 + 1
	if l.hasAfter {
		l.size++
	}
	return l.size
}

func (l *loopContext) call(r *run, items Value) Value {
	if l.recurse == nil {
		typeError("The loop must have the 'recursive' marker to be called recursively.")
	}
	return l.recurse.render(r, items, l.depth0+1)
}

// attribute is loop.NAME, nil where there is none.
func (l *loopContext) attribute(r *run, name string) Value {
	switch name {
	// Position and length; the length of an iterator is found by reading it to its end, as in Jinja.
	case "index":
		return l.index0 + 1
	case "index0":
		return l.index0
	case "length":
		return l.length(r)
	case "revindex":
		return l.length(r) - l.index0
	case "revindex0":
		return l.length(r) - l.index0 - 1
	case "first":
		return l.index0 == 0
	// What needs the next item reads one ahead.
	case "last":
		return l.peek() == nil
	case "depth":
		return l.depth0 + 1
	case "depth0":
		return l.depth0
	case "previtem":
		if l.index0 == 0 {
			return &Undefined{message: "there is no previous item"}
		}
		return l.before
	case "nextitem":
		if v := l.peek(); v != nil {
			return v
		}
		return &Undefined{message: "there is no next item"}
	// Methods.
	case "cycle":
		return &callable{"cycle", l.cycle}
	case "changed":
		return &callable{"changed", l.changed}
	}
	return nil
}

func (l *loopContext) cycle(r *run, g arguments) Value {
	if len(g.named) > 0 || len(g.pos) == 0 {
		typeError("no items for cycling given")
	}
	return g.pos[l.index0%len(g.pos)]
}

func (l *loopContext) changed(r *run, g arguments) Value {
	if len(g.named) > 0 {
		typeError("changed() takes no keyword arguments")
	}
	now := r.tuple(g.pos...)
	if l.lastChanged == nil || !r.equal(l.lastChanged, now, 0) {
		l.lastChanged = now
		return true
	}
	return false
}

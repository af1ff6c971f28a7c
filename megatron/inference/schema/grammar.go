package schema

import (
	"slices"
	"unsafe"
)

// node is a part of a grammar: what a text may hold next.
type node interface {
	// expand gives the ways to continue, where next is what follows the node; nodes that consume a
	// byte are not expanded.
	expand(here, next *stack) []*stack
}

// stack is what is still to come: a node, then the rest. nil: the text may end. Stacks are of one
// text, which comes back to them, so that each remembers where it leads.
type stack struct {
	node node
	next *stack
	ways []*stack // by which it continues; nil: not known yet
}

func push(n node, next *stack) *stack { return &stack{node: n, next: next} }

// set is a node that consumes one byte of a set.
type set [4]uint64

func (s *set) expand(here, _ *stack) []*stack { return []*stack{here} }
func (s *set) has(b byte) bool                { return s[b>>6]>>(b&63)&1 == 1 }

func (s *set) add(from, to byte) *set {
	for b := int(from); b <= int(to); b++ {
		s[b>>6] |= 1 << (b & 63)
	}
	return s
}

func span(from, to byte) *set { return new(set).add(from, to) }

// literal consumes its bytes one after another.
type literal string

func (l literal) expand(_, next *stack) []*stack {
	for i := len(l) - 1; i >= 0; i-- {
		next = push(span(l[i], l[i]), next)
	}
	return reach(next)
}

// sequence is its nodes one after another.
type sequence []node

func (s sequence) expand(_, next *stack) []*stack {
	for i := len(s) - 1; i >= 0; i-- {
		next = push(s[i], next)
	}
	return reach(next)
}

// choice is one of its nodes.
type choice []node

func (c choice) expand(_, next *stack) (all []*stack) {
	for _, n := range c {
		all = append(all, reach(push(n, next))...)
	}
	return all
}

// many is a node at least min times, and at most max; −1: any number.
type many struct {
	node     node
	min, max int
}

func (m many) expand(here, next *stack) (all []*stack) {
	if m.min == 0 {
		all = reach(next)
	}
	switch {
	case m.max == 0:
		return all
	case m.min == 0 && m.max < 0: // the same again: texts of any length have few different states
		return append(all, reach(push(m.node, here))...)
	}
	rest := many{m.node, max(0, m.min-1), m.max}
	if m.max > 0 {
		rest.max--
	}
	return append(all, reach(push(m.node, push(rest, next)))...)
}

// rule is a node by its name in a schema, which may hold itself.
type rule struct{ node node }

func (r *rule) expand(_, next *stack) []*stack { return reach(push(r.node, next)) }

// reach gives the ways from a stack to a byte, or to the end (nil).
func reach(s *stack) []*stack {
	if s == nil {
		return atEnd
	}
	if s.ways == nil {
		s.ways = slices.Clip(unique(s.node.expand(s, s.next))) // who appends makes a copy
	}
	return s.ways
}

var atEnd = []*stack{nil}

// State is where a text is in a grammar: all ways to continue, each to a byte or to the end.
type State struct{ ways []*stack }

// start is the state before a text.
func start(n node) State { return State{reach(push(n, nil))} }

// mostWays bounds the ways of a state: a schema of many alternatives that begin alike.
const mostWays = 4096

// step is the state after one more byte; ok is false where the grammar has none.
func (s State) step(b byte) (after State, ok bool) {
	var ways []*stack
	met := 0
	for _, w := range s.ways {
		if w == nil || !w.node.(*set).has(b) {
			continue
		}
		more := reach(w.next)
		switch met++; {
		case met == 1:
			ways = more // as the stack remembers it
		case len(ways)+len(more) > mostWays:
			return State{}, false
		default:
			ways = append(ways[:len(ways):len(ways)], more...)
		}
	}
	if met > 1 {
		ways = unique(ways)
	}
	return State{ways}, met > 0
}

// mayEnd reports whether the text may end here, mustEnd whether it can do nothing else.
func (s State) mayEnd() bool {
	for _, w := range s.ways {
		if w == nil {
			return true
		}
	}
	return false
}

func (s State) mustEnd() bool { return len(s.ways) == 1 && s.ways[0] == nil }

// unique drops duplicate ways.
func unique(ways []*stack) []*stack {
	if len(ways) < 2 {
		return ways
	}
	type key struct {
		set  set
		next *stack
	}
	seen, end := map[key]bool{}, false
	out := ways[:0:0]
	for _, w := range ways {
		if w == nil {
			if !end {
				end, out = true, append(out, nil)
			}
			continue
		}
		k := key{*w.node.(*set), w.next}
		if !seen[k] {
			seen[k] = true
			out = append(out, w)
		}
	}
	return out
}

// key names a state among those of one text: equal keys continue alike.
func (s State) key() string {
	b := make([]byte, 0, 40*len(s.ways))
	for _, w := range s.ways {
		if w == nil {
			b = append(b, 0)
			continue
		}
		k := *w.node.(*set)
		b = append(b, unsafe.Slice((*byte)(unsafe.Pointer(&k[0])), 32)...)
		at := uintptr(unsafe.Pointer(w.next))
		b = append(b, unsafe.Slice((*byte)(unsafe.Pointer(&at)), 8)...)
	}
	return string(b)
}

package schema

import (
	"fmt"
	"slices"
	"strings"
)

// Spelled reports whether a text of the grammar can be written with the vocabulary's tokens. The error names
// bytes that a text needs and that no token has, or what a text must begin with if no token begins so.
// nil is not a promise: tokens of several bytes may still leave a text without a next token (see Guide.Take).
func (g *Grammar) Spelled(v *Vocabulary) error {
	lacks, ok := v.lacks(g.root, map[*rule]bool{})
	if !ok {
		slices.Sort(lacks)
		return fmt.Errorf("no text can match this schema: the vocabulary has no token with %s", shown(slices.Compact(lacks)))
	}
	first := start(g.root)
	if first.mayEnd() || v.root.continues(first) {
		return nil
	}
	return fmt.Errorf("no text can match this schema: the vocabulary has no token that begins with %s", shown(first.bytes()))
}

// continues reports whether any token below the branch follows a state.
func (b *branch) continues(s State) bool {
	for i, c := range b.bytes {
		if after, ok := s.step(c); ok && (len(b.next[i].ids) > 0 || b.next[i].continues(after)) {
			return true
		}
	}
	return false
}

// lacks is the bytes that a text of the node needs and no token has; ok: there are none. Of a choice only the
// alternative that lacks least counts. inside are the rules that the node is a part of: one that needs itself
// has no text.
func (v *Vocabulary) lacks(n node, inside map[*rule]bool) (bytes []byte, ok bool) {
	switch n := n.(type) {
	case *set:
		all := n.bytes()
		if slices.ContainsFunc(all, func(b byte) bool { return v.has[b] }) {
			return nil, true
		}
		return all, false
	case literal:
		for _, b := range []byte(n) {
			if !v.has[b] {
				bytes = append(bytes, b)
			}
		}
		return bytes, len(bytes) == 0
	case sequence:
		return v.lacksOfAll(n, inside)
	case choice:
		return v.lacksLeast(n, inside)
	case many:
		if n.min == 0 {
			return nil, true
		}
		return v.lacks(n.node, inside)
	case members:
		var required []node
		for _, m := range n.of.members {
			if m.required {
				required = append(required, m.pair)
			}
		}
		if len(required) > 1 {
			required = append(required, comma)
		}
		return v.lacksOfAll(required, inside)
	case *rule:
		if inside[n] {
			return nil, false
		}
		inside[n] = true
		defer delete(inside, n)
		return v.lacks(n.node, inside)
	}
	return nil, true // any text
}

func (v *Vocabulary) lacksOfAll(nodes []node, inside map[*rule]bool) (bytes []byte, ok bool) {
	ok = true
	for _, n := range nodes {
		lacks, spelled := v.lacks(n, inside)
		bytes, ok = append(bytes, lacks...), ok && spelled
	}
	return bytes, ok
}

func (v *Vocabulary) lacksLeast(nodes []node, inside map[*rule]bool) (bytes []byte, ok bool) {
	for _, n := range nodes {
		lacks, spelled := v.lacks(n, inside)
		if spelled {
			return nil, true
		}
		if bytes == nil || len(lacks) > 0 && len(lacks) < len(bytes) {
			bytes = lacks
		}
	}
	return bytes, len(nodes) == 0
}

// bytes are those of the set, ascending.
func (s *set) bytes() (all []byte) {
	for b := range 256 {
		if s.has(byte(b)) {
			all = append(all, byte(b))
		}
	}
	return all
}

// bytes are those that the state continues with, ascending.
func (s State) bytes() (all []byte) {
	for _, w := range s.ways {
		if w != nil {
			all = append(all, w.node.(*set).bytes()...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// shown is bytes for people: characters in quotes, a few of many.
func shown(bytes []byte) string {
	const most = 12
	var parts []string
	for _, b := range bytes[:min(len(bytes), most)] {
		if b < 0x80 {
			parts = append(parts, fmt.Sprintf("%q", rune(b)))
		} else {
			parts = append(parts, fmt.Sprintf("byte %#02x", b))
		}
	}
	if n := len(bytes) - most; n > 0 {
		parts = append(parts, fmt.Sprintf("%d others", n))
	}
	return strings.Join(parts, ", ")
}

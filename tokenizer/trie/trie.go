// Package trie finds which of many strings a text continues with.
package trie

import "slices"

// Trie holds byte strings with a value each. The children of a node lie side
// by side, in the order of their bytes.
type Trie struct {
	nodes []node
	root  [256]int32 // child of the root by byte; 0: none
}

type node struct {
	first, end int32 // children
	value      int32 // -1: no string ends here
	b          byte
}

// New makes a trie; of equal keys the last counts. Empty keys are left out.
func New(keys []string, values []int32) *Trie {
	// Sorted, keys with a common beginning are neighbours.
	order := make([]int32, 0, len(keys))
	for i, k := range keys {
		if k != "" {
			order = append(order, int32(i))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		switch {
		case keys[a] < keys[b]:
			return -1
		case keys[a] > keys[b]:
			return 1
		}
		return 0
	})
	// Breadth first: children of a node are neighbours too, [first, end), sorted by their byte.
	t := &Trie{nodes: []node{{value: -1}}}
	type span struct {
		node, from, to int32 // order[from:to] begin with the node's bytes
		depth          int
	}
	queue := []span{{0, 0, int32(len(order)), 0}}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		// The key that ends here, if any, then one child for each next byte.
		i := s.from
		for i < s.to && len(keys[order[i]]) == s.depth {
			t.nodes[s.node].value = values[order[i]]
			i++
		}
		t.nodes[s.node].first = int32(len(t.nodes))
		for i < s.to {
			j, b := i, keys[order[i]][s.depth]
			for j < s.to && keys[order[j]][s.depth] == b {
				j++
			}
			queue = append(queue, span{int32(len(t.nodes)), i, j, s.depth + 1})
			t.nodes = append(t.nodes, node{value: -1, b: b})
			i = j
		}
		t.nodes[s.node].end = int32(len(t.nodes))
	}
	// A table gives the node of a first byte.
	for i := t.nodes[0].first; i < t.nodes[0].end; i++ {
		t.root[t.nodes[i].b] = i
	}
	return t
}

// Has says whether some key begins with b.
func (t *Trie) Has(b byte) bool { return t.root[b] != 0 }

// child is the node behind at by b, 0 where there is none.
func (t *Trie) child(at int32, b byte) int32 {
	n := &t.nodes[at]
	lo, hi := n.first, n.end
	for hi-lo > 8 {
		if mid := (lo + hi) / 2; t.nodes[mid].b <= b {
			lo = mid
		} else {
			hi = mid
		}
	}
	for ; lo < hi; lo++ {
		if t.nodes[lo].b == b {
			return lo
		}
	}
	return 0
}

// Prefixes calls visit with the length and value of each key that text begins
// with, the shortest first.
func (t *Trie) Prefixes(text string, visit func(n int, value int32)) {
	if text == "" {
		return
	}
	for at, i := t.root[text[0]], 1; at != 0; i++ {
		if v := t.nodes[at].value; v >= 0 {
			visit(i, v)
		}
		if i == len(text) {
			return
		}
		at = t.child(at, text[i])
	}
}

// Longest is the longest key that text begins with; n = 0 where there is none.
func (t *Trie) Longest(text string) (n int, value int32) {
	t.Prefixes(text, func(length int, v int32) { n, value = length, v })
	return n, value
}

// Find is the leftmost key in text from byte from on, the longest where several
// begin; at < 0 where there is none.
func (t *Trie) Find(text string, from int) (at, n int, value int32) {
	for at := from; at < len(text); at++ {
		if t.root[text[at]] == 0 {
			continue
		}
		if n, value := t.Longest(text[at:]); n > 0 {
			return at, n, value
		}
	}
	return -1, 0, 0
}

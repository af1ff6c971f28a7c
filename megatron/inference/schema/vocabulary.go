package schema

import (
	"slices"

	"monotron/tokenizer"
)

// Vocabulary is the bytes of all tokens, as a tree.
type Vocabulary struct {
	root branch
	size int
	has  [256]bool // bytes that are in any token
}

type branch struct {
	ids   []int32 // tokens that end here
	bytes []byte  // what follows, ascending
	next  []*branch
}

// NewVocabulary reads a tokenizer's tokens. Those without text of their own, such as the
// ends of a text, are left out.
func NewVocabulary(tok tokenizer.Tokenizer, size int, special []int32) *Vocabulary {
	v := &Vocabulary{size: size}
	var text []byte
	for id := range int32(min(size, tok.VocabSize())) {
		if text = tok.AppendBytes(text[:0], id); len(text) > 0 && !slices.Contains(special, id) {
			v.root.add(text, id)
			for _, b := range text {
				v.has[b] = true
			}
		}
	}
	return v
}

// Size counts ids, including those without text.
func (v *Vocabulary) Size() int { return v.size }

func (b *branch) add(text []byte, id int32) {
	for _, c := range text {
		at, found := slices.BinarySearch(b.bytes, c)
		if !found {
			b.bytes, b.next = slices.Insert(b.bytes, at, c), slices.Insert(b.next, at, &branch{})
		}
		b = b.next[at]
	}
	b.ids = append(b.ids, id)
}

// allowed are the tokens that a state continues with, as a bit an id.
func (v *Vocabulary) allowed(s State) []uint64 {
	bits := make([]uint64, (v.size+63)/64)
	v.root.walk(s, bits)
	return bits
}

func (b *branch) walk(s State, bits []uint64) {
	for i, c := range b.bytes {
		after, ok := s.step(c)
		if !ok {
			continue
		}
		next := b.next[i]
		for _, id := range next.ids {
			bits[id>>6] |= 1 << (id & 63)
		}
		next.walk(after, bits)
	}
}

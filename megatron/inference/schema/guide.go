package schema

import (
	"fmt"
	"slices"

	"monotron/internal/exitcode"
	"monotron/tokenizer"
)

// Guide follows one text. It is not safe for several goroutines.
type Guide struct {
	vocabulary *Vocabulary
	tok        tokenizer.Tokenizer
	ends       []int32
	state      State
	known      map[string]visited // by state: texts come back to few
	list       []int32            // what Banned gave last
}

// visited is a state that the text was in, which keeps what its key is made of, and the tokens
// that are allowed there, a bit an id.
type visited struct {
	state   State
	allowed []uint64
}

// NewGuide is at the beginning of a text; ends are the tokens that end it.
func (g *Grammar) NewGuide(v *Vocabulary, tok tokenizer.Tokenizer, ends []int32) *Guide {
	return &Guide{vocabulary: v, tok: tok, ends: ends, state: start(g.root), known: map[string]visited{}}
}

// mostKnown bounds what a text remembers.
const mostKnown = 32

// Banned are the tokens that may not come next, ascending. The list is used again by the next call.
func (g *Guide) Banned() []int32 {
	bits := g.allowed()
	g.list = g.list[:0]
	for id := range int32(g.vocabulary.size) {
		if bits[id>>6]>>(id&63)&1 == 0 {
			g.list = append(g.list, id)
		}
	}
	return g.list
}

func (g *Guide) allowed() []uint64 {
	key := g.state.key()
	if v, known := g.known[key]; known {
		return v.allowed
	}
	bits := g.vocabulary.allowed(g.state)
	if g.state.mayEnd() {
		for _, id := range g.ends {
			if int(id) < g.vocabulary.size && id >= 0 {
				bits[id>>6] |= 1 << (id & 63)
			}
		}
	}
	if len(g.known) >= mostKnown {
		clear(g.known)
	}
	g.known[key] = visited{g.state, bits}
	return bits
}

// Take continues with a token; complete: nothing can follow. An error is a token that Banned has,
// or one after which the vocabulary has none that the schema allows, which is the request's fault (exitcode.BadData).
func (g *Guide) Take(id int32) (complete bool, err error) {
	for _, b := range g.tok.AppendBytes(nil, id) {
		after, ok := g.state.step(b)
		if !ok {
			return false, fmt.Errorf("token %d does not match the schema", id)
		}
		g.state = after
	}
	switch {
	case g.state.mustEnd():
		return true, nil
	case slices.ContainsFunc(g.allowed(), func(word uint64) bool { return word != 0 }):
		return false, nil
	case g.state.mayEnd():
		return true, nil
	}
	return false, exitcode.Errorf(exitcode.BadData, "the vocabulary has no token with which the text can continue and match the schema: the next character must be %s", shown(g.state.bytes()))
}

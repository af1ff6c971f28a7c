package sp

import (
	"unicode/utf8"
)

// step is the best way to reach a byte: by piece id from byte from.
type step struct {
	score float32
	from  int32
	id    int32
}

// unigram cuts text so that the scores of its pieces add up to most, in
// float32 and in the order of the original.
func (m *Model) unigram(text string, emit func(piece string, id int32)) {
	best := make([]step, len(text)+1)
	for i := range best {
		best[i].from = -1
	}
	for at := 0; at < len(text); {
		_, width := utf8.DecodeRuneInString(text[at:])
		single, here := false, best[at].score
		m.trie.Prefixes(text[at:], func(n int, id int32) {
			to, p := &best[at+n], &m.pieces[id]
			if p.kind == unused {
				return
			}
			score := p.score + here
			if p.kind == userDefined { // a sum of doubles, rounded once
				score = float32(float64(float32(n)*m.most) - 0.1 + float64(here))
			}
			if to.from < 0 || score > to.score {
				*to = step{score, int32(at), id}
			}
			single = single || n == width
		})
		if !single {
			to := &best[at+width]
			if score := m.least - 10 + here; to.from < 0 || score > to.score {
				*to = step{score, int32(at), m.unk}
			}
		}
		at += width
	}
	var path []int
	for end := len(text); end > 0; end = int(best[end].from) {
		path = append(path, end)
	}
	for i := len(path) - 1; i >= 0; i-- {
		s := best[path[i]]
		emit(text[s.from:path[i]], s.id)
	}
}

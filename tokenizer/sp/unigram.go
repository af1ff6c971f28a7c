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

// unigram cuts text so that the scores of its pieces add up to most, rounded where
// the original rounds: what is kept is float32, but a piece's sum is compared before
// it is rounded (its score has become a double, since a user-defined symbol's is).
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
			score := float64(p.score)
			if p.kind == userDefined {
				score = float64(float32(n)*m.most) - 0.1
			}
			if score += float64(here); to.from < 0 || score > float64(to.score) {
				*to = step{float32(score), int32(at), id}
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

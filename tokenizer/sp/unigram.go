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

// farScore is a sum of scores that is moved back to 0, with all those ahead.
const farScore = 100000

// unigram cuts text so that the scores of its pieces add up to most, in
// float32 and in the order of the original (sentencepiece 0.2.3).
func (m *Model) unigram(text string, emit func(piece string, id int32)) {
	best := make([]step, len(text)+1)
	for i := range best {
		best[i].from = -1
	}
	front := 0 // the farthest byte that was reached
	for at := 0; at < len(text); {
		if here := best[at].score; here < -farScore || here > farScore {
			moveBack(best[at:max(at, front)+1], here)
		}
		_, width := utf8.DecodeRuneInString(text[at:])
		single, here := false, best[at].score
		m.trie.Prefixes(text[at:], func(n int, id int32) {
			to, p := &best[at+n], &m.pieces[id]
			if p.kind == unused {
				return
			}
			front = max(front, at+n)
			score := p.score
			if p.kind == userDefined { // above all others, the longer the better
				score = float32(0.1 * float64(n-1))
			}
			if score += here; to.from < 0 || score > to.score {
				*to = step{score, int32(at), id}
			}
			single = single || n == width
		})
		if !single {
			front = max(front, at+width)
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

// moveBack takes offset from the sums that were reached: the first, and those
// ahead of it.
func moveBack(best []step, offset float32) {
	for i := range best {
		if i == 0 || best[i].from >= 0 {
			best[i].score -= offset
		}
	}
}

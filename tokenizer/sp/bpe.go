package sp

import (
	"container/heap"
	"unicode/utf8"
)

// symbol is a stretch of the text that is a piece so far.
type symbol struct {
	from, to   int32 // to = from: joined to the one before
	prev, next int32 // -1: none
	frozen     bool  // user-defined: never joined
}

// joint is a possible joining of two neighbours into a piece of size bytes.
type joint struct {
	score       float32
	left, right int32
	size        int32
}

type joints []joint

func (j joints) Len() int { return len(j) }
func (j joints) Less(a, b int) bool {
	return j[a].score > j[b].score || j[a].score == j[b].score && j[a].left < j[b].left
}
func (j joints) Swap(a, b int) { j[a], j[b] = j[b], j[a] }
func (j *joints) Push(x any)   { *j = append(*j, x.(joint)) }
func (j *joints) Pop() any {
	last := (*j)[len(*j)-1]
	*j = (*j)[:len(*j)-1]
	return last
}

// joiner is the state of one text.
type joiner struct {
	m       *Model
	text    string
	symbols []symbol
	agenda  joints
	halves  map[string]int // where a piece that is not to be used was joined: length of its left half
}

// bpe joins the best-scored neighbours that make a piece until none do.
func (m *Model) bpe(text string, emit func(piece string, id int32)) {
	j := joiner{m: m, text: text, halves: map[string]int{}}
	j.begin()
	for i := 1; i < len(j.symbols); i++ {
		j.offer(int32(i-1), int32(i))
	}
	for len(j.agenda) > 0 {
		top := heap.Pop(&j.agenda).(joint)
		l, r := &j.symbols[top.left], &j.symbols[top.right]
		if l.from == l.to || r.from == r.to || l.to-l.from+r.to-r.from != top.size {
			continue
		}
		l.to, l.next = r.to, r.next
		r.from = r.to
		if l.next >= 0 {
			j.symbols[l.next].prev = top.left
		}
		j.offer(l.prev, top.left)
		j.offer(top.left, l.next)
	}
	for i := int32(0); i >= 0 && len(j.symbols) > 0; i = j.symbols[i].next {
		j.emit(text[j.symbols[i].from:j.symbols[i].to], emit)
	}
}

func (j *joiner) begin() {
	for at := 0; at < len(j.text); {
		s := symbol{from: int32(at), prev: int32(len(j.symbols) - 1), next: int32(len(j.symbols) + 1)}
		n := 0
		if j.m.symbols != nil {
			n, _ = j.m.symbols.Longest(j.text[at:])
		}
		if s.frozen = n > 0; !s.frozen {
			_, n = utf8.DecodeRuneInString(j.text[at:])
		}
		at += n
		s.to = int32(at)
		j.symbols = append(j.symbols, s)
	}
	if n := len(j.symbols); n > 0 {
		j.symbols[n-1].next = -1
	}
}

func (j *joiner) offer(left, right int32) {
	if left < 0 || right < 0 || j.symbols[left].frozen || j.symbols[right].frozen {
		return
	}
	l, r := j.symbols[left], j.symbols[right]
	text := j.text[l.from:r.to]
	id, ok := j.m.ids[text]
	if !ok {
		return
	}
	p := &j.m.pieces[id]
	heap.Push(&j.agenda, joint{p.score, left, right, int32(len(text))})
	if p.kind == unused {
		j.halves[text] = int(l.to - l.from)
	}
}

// emit gives out a piece; one that is not to be used, as the two it was joined from.
func (j *joiner) emit(text string, emit func(piece string, id int32)) {
	id := j.m.id(text)
	if half, ok := j.halves[text]; ok && j.m.pieces[id].kind == unused {
		j.emit(text[:half], emit)
		j.emit(text[half:], emit)
		return
	}
	emit(text, id)
}

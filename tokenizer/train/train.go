// Package train makes a byte-level BPE from counted words. It makes the merges
// that Hugging Face's BpeTrainer makes: the most frequent pair first, of equal
// ones that of the lower ids, and like it it may meet a pair a second time when
// a token can be made in two ways.
package train

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"

	"monotron/internal/exitcode"
	"monotron/tokenizer/bpe"
)

// Config says how large the vocabulary becomes and what it begins with.
type Config struct {
	VocabSize    int
	MinFrequency int64    // pairs found less often are not merged
	Special      []string // tokens with the first ids
	Progress     func(tokens int)
}

// Result is a vocabulary in the byte spelling, by id, and its merges in order.
type Result struct {
	Tokens []string
	Merges [][2]int32
}

type pair [2]int32

// queued is a pair that was found in new positions.
type queued struct {
	pair  pair
	count int64
	words []int32
}

type queue []queued

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if q[i].count != q[j].count {
		return q[i].count > q[j].count
	}
	return slices.Compare(q[i].pair[:], q[j].pair[:]) < 0
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(queued)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// trainer is the state between two merges.
type trainer struct {
	tokens []string
	ids    map[string]int32
	words  [][]int32
	counts []int64
	pairs  map[pair]int64
	within map[pair][]int32 // words where a pair turned up since the last push
	queue  queue
}

// Words trains on counted words, which are byte strings. The result depends on
// the counts alone.
func Words(counts map[string]int64, c Config) (*Result, error) {
	if least := 256 + len(c.Special); c.VocabSize < least {
		return nil, exitcode.Errorf(exitcode.Usage, "--vocab-size %d is less than the %d bytes and special tokens that every vocabulary has", c.VocabSize, least)
	}
	t := &trainer{ids: map[string]int32{}, pairs: map[pair]int64{}, within: map[pair][]int32{}}
	if err := t.alphabet(c.Special); err != nil {
		return nil, err
	}
	t.load(counts)
	merges := t.run(c)
	return &Result{t.tokens, merges}, nil
}

// alphabet gives ids to the special tokens and to the bytes, in the order of
// the characters that spell them.
func (t *trainer) alphabet(special []string) error {
	for _, s := range special {
		if _, twice := t.ids[s]; twice || s == "" {
			return exitcode.Errorf(exitcode.Usage, "--special-tokens: %q is empty or occurs twice", s)
		}
		t.id(s)
	}
	spelled := slices.Clone(bpe.Spelling[:])
	slices.Sort(spelled)
	for _, r := range spelled {
		t.id(string(r))
	}
	return nil
}

func (t *trainer) id(token string) int32 {
	id, ok := t.ids[token]
	if !ok {
		id = int32(len(t.tokens))
		t.ids[token] = id
		t.tokens = append(t.tokens, token)
	}
	return id
}

// load spells the words and counts their pairs.
func (t *trainer) load(counts map[string]int64) {
	var single [256]int32
	for b := range single {
		single[b] = t.ids[string(bpe.Spelling[b])]
	}
	for i, word := range slices.Sorted(maps.Keys(counts)) {
		ids := make([]int32, len(word))
		for j := range len(word) {
			ids[j] = single[word[j]]
		}
		t.words, t.counts = append(t.words, ids), append(t.counts, counts[word])
		for j := 1; j < len(ids); j++ {
			t.change(pair{ids[j-1], ids[j]}, int32(i), counts[word])
		}
	}
	t.push()
}

// change adds n to the count of a pair, found in a word where n > 0.
func (t *trainer) change(p pair, word int32, n int64) {
	t.pairs[p] += n
	if n > 0 {
		if at := t.within[p]; len(at) == 0 || at[len(at)-1] != word {
			t.within[p] = append(at, word)
		}
	}
}

// push puts the pairs with new positions into the queue.
func (t *trainer) push() {
	for p, words := range t.within {
		if n := t.pairs[p]; n > 0 {
			heap.Push(&t.queue, queued{p, n, words})
		}
	}
	clear(t.within)
}

// run merges until the vocabulary is full or no pair is left.
func (t *trainer) run(c Config) [][2]int32 {
	rank := map[pair]int{}
	for n := 0; len(t.tokens) < c.VocabSize && len(t.queue) > 0; n++ {
		top := heap.Pop(&t.queue).(queued)
		if now := t.pairs[top.pair]; top.count != now {
			top.count = now
			heap.Push(&t.queue, top)
			continue
		}
		if top.count < 1 || top.count < c.MinFrequency {
			break
		}
		into := t.id(t.tokens[top.pair[0]] + t.tokens[top.pair[1]])
		rank[top.pair] = n
		slices.Sort(top.words) // the order of words must not show in later ones
		for _, w := range top.words {
			t.merge(w, top.pair, into)
		}
		t.push()
		if c.Progress != nil {
			c.Progress(len(t.tokens))
		}
	}
	merges := make([][2]int32, 0, len(rank))
	for _, p := range slices.SortedFunc(maps.Keys(rank), func(a, b pair) int { return cmp.Compare(rank[a], rank[b]) }) {
		merges = append(merges, p)
	}
	return merges
}

// merge joins the pair wherever it stands in a word.
func (t *trainer) merge(word int32, p pair, into int32) {
	ids, n := t.words[word], t.counts[word]
	out := ids[:0]
	for i := 0; i < len(ids); i++ {
		if i+1 == len(ids) || ids[i] != p[0] || ids[i+1] != p[1] {
			out = append(out, ids[i])
			continue
		}
		if len(out) > 0 {
			before := out[len(out)-1]
			t.change(pair{before, p[0]}, word, -n)
			t.change(pair{before, into}, word, n)
		}
		if i+2 < len(ids) {
			t.change(pair{p[1], ids[i+2]}, word, -n)
			t.change(pair{into, ids[i+2]}, word, n)
		}
		out = append(out, into)
		i++
	}
	t.words[word] = out
}

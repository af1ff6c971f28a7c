package layouts

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"monotron/internal/drawn"
)

// sampler chooses layouts for a test that has no time for all: of the layouts of all models that it is shown
// one with each word of their names (tp, sp, alltoall, recompute-moe ..), of few ranks where it can be,
// and `more` of each model. SEED draws others.
type sampler struct {
	random   *rand.Rand
	seed     uint64
	more     int
	seen     map[string]bool
	kept, of int
}

func newSampler(more int) *sampler {
	seed := drawn.Seed(1)
	return &sampler{rand.New(rand.NewPCG(seed, 7)), seed, more, map[string]bool{}, 0, 0}
}

// choose takes some a model's layouts.
func (s *sampler) choose(all []Variant) (some []Variant) {
	shuffled := slices.Clone(all)
	s.random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	more := min(s.more, len(shuffled))
	some = append(some, shuffled[:more]...)
	for _, v := range some {
		s.see(v)
	}
	rest := shuffled[more:]
	slices.SortStableFunc(rest, func(a, b Variant) int { return cmp.Compare(a.Layout.WorldSize, b.Layout.WorldSize) })
	for _, v := range rest {
		if s.see(v) {
			some = append(some, v)
		}
	}
	s.kept, s.of = s.kept+len(some), s.of+len(all)
	return some
}

// see reports whether a layout has a word that none before had.
func (s *sampler) see(v Variant) (fresh bool) {
	for _, word := range strings.Fields(v.String()) {
		word = strings.TrimRight(word, "0123456789") // tp2, tp4: one kind
		fresh = fresh || !s.seen[word]
		s.seen[word] = true
	}
	return fresh
}

// agree trains a model under layouts that are drawn, which must agree with one rank.
func (s *sampler) agree(t *testing.T, m Model, o Options) {
	t.Helper()
	kept := map[string]bool{}
	name := func(v Variant) string { return fmt.Sprint(v, " ", v.MicroBatch) }
	for _, v := range s.choose(o.candidates(m)) {
		kept[name(v)] = true
	}
	o.Keep, o.Open, o.Reported = func(v Variant) bool { return kept[name(v)] }, open, func(Progress) {}
	r, err := Prove([]Model{m}, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) < s.more {
		t.Errorf("%s: only %d layouts", m.Name, len(r.Rows))
	}
	for _, row := range r.Rows {
		if !row.OK {
			t.Errorf("%s, %s: %s", row.Model, row.Layout, row.Problem)
		}
	}
}

// said reports how much was tried.
func (s *sampler) said(t *testing.T) {
	t.Helper()
	t.Logf("%d of %d layouts, SEED %d: each word of their names, and %d of each model", s.kept, s.of, s.seed, s.more)
}

package layouts

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// drawn chooses layouts for a test that has no time for all: of the layouts of all models that it is shown
// one with each word of their names (tp, sp, alltoall, recompute-moe ..), of few ranks where it can be,
// and `more` of each model. SEED draws others.
type drawn struct {
	random   *rand.Rand
	seed     uint64
	more     int
	seen     map[string]bool
	kept, of int
}

func newDrawn(more int) *drawn {
	seed, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	if err != nil {
		seed = 1
	}
	return &drawn{rand.New(rand.NewPCG(seed, 7)), seed, more, map[string]bool{}, 0, 0}
}

// choose takes some a model's layouts.
func (d *drawn) choose(all []Variant) (some []Variant) {
	shuffled := slices.Clone(all)
	d.random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	more := min(d.more, len(shuffled))
	some = append(some, shuffled[:more]...)
	for _, v := range some {
		d.see(v)
	}
	rest := shuffled[more:]
	slices.SortStableFunc(rest, func(a, b Variant) int { return cmp.Compare(a.Layout.WorldSize, b.Layout.WorldSize) })
	for _, v := range rest {
		if d.see(v) {
			some = append(some, v)
		}
	}
	d.kept, d.of = d.kept+len(some), d.of+len(all)
	return some
}

// see reports whether a layout has a word that none before had.
func (d *drawn) see(v Variant) (fresh bool) {
	for _, word := range strings.Fields(v.String()) {
		word = strings.TrimRight(word, "0123456789") // tp2, tp4: one kind
		fresh = fresh || !d.seen[word]
		d.seen[word] = true
	}
	return fresh
}

// agree trains a model under layouts that are drawn, which must agree with one rank.
func (d *drawn) agree(t *testing.T, m Model, o Options) {
	t.Helper()
	kept := map[string]bool{}
	name := func(v Variant) string { return fmt.Sprint(v, " ", v.MicroBatch) }
	for _, v := range d.choose(o.candidates(m)) {
		kept[name(v)] = true
	}
	o.Keep, o.Open, o.Reported = func(v Variant) bool { return kept[name(v)] }, open, func(Progress) {}
	r, err := Prove([]Model{m}, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) < d.more {
		t.Errorf("%s: only %d layouts", m.Name, len(r.Rows))
	}
	for _, row := range r.Rows {
		if !row.OK {
			t.Errorf("%s, %s: %s", row.Model, row.Layout, row.Problem)
		}
	}
}

// said reports how much was tried.
func (d *drawn) said(t *testing.T) {
	t.Helper()
	t.Logf("%d of %d layouts, SEED %d: each word of their names, and %d of each model", d.kept, d.of, d.seed, d.more)
}

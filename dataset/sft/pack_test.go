package sft

import (
	"fmt"
	"slices"
	"testing"
)

// made are documents of these lengths, all learned, with ids that count on.
func made(lengths ...int) (docs []Document) {
	id := int32(1)
	for _, n := range lengths {
		d := Document{Learn: [][2]int{{0, n}}}
		for range n {
			d.IDs = append(d.IDs, id)
			id++
		}
		docs = append(docs, d)
	}
	return docs
}

// Claim (the example in TRL's documentation of packing): rows of 5, 2, 3 and 1 tokens in
// samples of 4 give [[1,2,3,4],[8,9,10,11],[6,7]] by best fit decreasing.
func TestBestFitOfTRL(t *testing.T) {
	docs := made(5, 2, 3, 1)
	docs[0].truncate(4)
	docs, packs := pack(docs, Config{Length: 4, Packing: PackBFD})
	var got [][]int32
	for _, p := range packs {
		var ids []int32
		for _, n := range p {
			ids = append(ids, docs[n].IDs...)
		}
		got = append(got, ids)
	}
	if fmt.Sprint(got) != "[[1 2 3 4] [8 9 10 11] [6 7]]" {
		t.Errorf("%v", got)
	}
}

// Claim (the rule, by search): each document is in one sample, none is too full, and each went to
// the fullest sample that had space, of equal ones to the one that has waited longest.
func TestBestFitBySearch(t *testing.T) {
	var lengths []int
	for i := range 700 {
		lengths = append(lengths, 1+(i*i*31+i*17)%60)
	}
	docs := made(lengths...)
	_, packs := pack(docs, Config{Length: 64, Packing: PackBFD})
	order := make([]int, len(docs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return lengths[b] - lengths[a] })
	type bin struct{ left, since int }
	var bins []bin
	var want [][]int32
	for clock, doc := range order {
		best := -1
		for i, b := range bins {
			if b.left >= lengths[doc] && (best < 0 || b.left < bins[best].left || b.left == bins[best].left && b.since < bins[best].since) {
				best = i
			}
		}
		if best < 0 {
			best = len(bins)
			bins, want = append(bins, bin{left: 64}), append(want, nil)
		}
		bins[best].left, bins[best].since = bins[best].left-lengths[doc], clock
		want[best] = append(want[best], int32(doc))
	}
	if fmt.Sprint(packs) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", packs, want)
	}
}

// Claim: cutting keeps every token, and drops a piece without a learned one.
func TestSplitDocuments(t *testing.T) {
	d := made(10)
	d[0].Learn = [][2]int{{0, 1}, {6, 7}}
	got := split(d, 4)
	if len(got) != 1 || got[0].IDs[0] != 5 || fmt.Sprint(got[0].Learn) != "[[2 3]]" {
		t.Errorf("%+v", got)
	}
}

// Claim: an epoch has every sample once, two epochs differ, and sample k is the same however a
// run came to it.
func TestEpochs(t *testing.T) {
	set := &Set{length: 2, docs: made(2, 2, 2, 2, 2, 2, 2)}
	set.docs, set.packs = pack(set.docs, Config{})
	e := Epochs(set, Config{Shuffle: true, Seed: 5})
	first := func(k int64) int32 {
		s, err := e.Sample(k)
		if err != nil {
			t.Fatal(err)
		}
		return s.Tokens[0]
	}
	var all []int32
	for k := range int64(14) {
		all = append(all, first(k))
	}
	one, two := slices.Sorted(slices.Values(all[:7])), slices.Sorted(slices.Values(all[7:]))
	if fmt.Sprint(one) != "[1 3 5 7 9 11 13]" || !slices.Equal(one, two) || slices.Equal(all[:7], all[7:]) {
		t.Errorf("%v", all)
	}
	if again := first(3); again != all[3] {
		t.Errorf("sample 3 is %d after sample 13, %d before", again, all[3])
	}
}

package bpe

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// kernelModel is a model over single bytes with merges of random pairs, many
// levels deep.
func kernelModel(rng *rand.Rand) *Model {
	m := &Model{pattern: GPT2, merges: NewMerges(3000)}
	for b := range m.bytes {
		m.bytes[b] = int32(255 - b)
	}
	letters := "etaoin '.\n\t12\xd0\xbf\xe4\xbd\xa0"
	for rank := range int32(3000) {
		part := func() int32 {
			if rank > 100 && rng.IntN(2) == 0 {
				return 256 + rng.Int32N(rank)
			}
			return m.bytes[letters[rng.IntN(len(letters))]]
		}
		m.merges.Add(part(), part(), rank, 256+rank)
	}
	return m
}

// Claim: kernel.c gives the ids of the plain Go path, on every mixture of
// characters and lengths, bytes that are not UTF-8 among them, with cold and
// with warm tables.
func TestKernelEqualsGo(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	m := kernelModel(rng)
	if newKernel(m) == nil {
		t.Skip("no kernel on this machine")
	}
	fast, plain := newEncoder(m), &encoder{m: m, split: newSplitter(GPT2), long: map[string][]int32{}}
	alphabets := []string{"etaoin", "ab'stlvremd  \t\n1.", "a1. \n", "'stlvredm", " \t\r\n\x0b\x0c\x1c", "aZ@[`{09/:\x00\x7f!~ ", "a é漢1 '", "e", "привет мир", "漢字かな \u3000\u2028"}
	for round := range 4000 {
		var text []byte
		for n := rng.IntN(1 + round%400); len(text) < n; {
			letters := []rune(alphabets[rng.IntN(len(alphabets))])
			for range 1 + rng.IntN(60) {
				text = append(text, string(letters[rng.IntN(len(letters))])...)
			}
			if rng.IntN(20) == 0 {
				text = append(text, byte(rng.IntN(256)))
			}
		}
		before := []int32{7}
		got, want := fast.text(before, text), plain.text(before, text)
		if !slices.Equal(got, want) {
			t.Fatalf("%q: %v, want %v", text, got, want)
		}
	}
}

// Claim: long texts, which fill the kernel's batches and outgrow the space for ids,
// come out the same too.
func TestKernelOnLongTexts(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	m := kernelModel(rng)
	if newKernel(m) == nil {
		t.Skip("no kernel on this machine")
	}
	fast, plain := newEncoder(m), &encoder{m: m, split: newSplitter(GPT2), long: map[string][]int32{}}
	for _, letters := range []string{"e ", "etaoin .", "\x01\x02", "é", "x"} {
		list, text := []rune(letters), []byte(nil)
		for len(text) < 300000 {
			text = append(text, string(list[rng.IntN(len(list))])...)
		}
		if got, want := fast.text(nil, text), plain.text(nil, text); !slices.Equal(got, want) {
			t.Fatalf("%q: %d ids, want %d", letters, len(got), len(want))
		}
	}
}

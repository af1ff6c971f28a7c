package bpe

import (
	"math/rand/v2"
	"testing"
)

// Claim: the starts found 64 bytes at a time are those of the pattern followed
// character by character, on every mixture of classes.
func TestStartsEqualPattern(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	alphabets := []string{"ab'stlvremd  \t\n1.", "a1. \n", "'stlvredm", " \t\r\n\x0b\x0c\x1cx", "aZ@[`{09/:\x00\x7f!~ ", "a é漢1 '"}
	s := newSplitter(GPT2)
	for range 200000 {
		letters := []rune(alphabets[rng.IntN(len(alphabets))])
		var text []byte
		for len(text) < margin+8 {
			text = append(text, string(letters[rng.IntN(len(letters))])...)
		}
		got := starts(text)
		last := 63
		for got>>last == 0 {
			last--
		}
		want := uint64(0)
		for at := 0; at <= last; at = s.nextGPT2(text, at) {
			want |= 1 << at
		}
		if got != want {
			t.Fatalf("%q: starts %b, want %b", text, got, want)
		}
	}
}

package uni

import (
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

// Claim: where the tables agree and no run of marks is long, our normalization
// is x/text's, for single characters and for random neighbours.
func TestNormalizeAgreesWithText(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var all []rune
	for _, r := range mustRanges("normal") {
		for c := r.First; c <= r.Last; c++ {
			all = append(all, c)
		}
	}
	forms := map[Form]norm.Form{NFC: norm.NFC, NFD: norm.NFD, NFKC: norm.NFKC, NFKD: norm.NFKD}
	for _, c := range all {
		for f, g := range forms {
			if got, want := Normalize(f, "a"+string(c)), g.String("a"+string(c)); got != want {
				t.Fatalf("%d of a%U: %+q, want %+q", f, c, got, want)
			}
		}
	}
	starters := []rune("aeoAEHkı가각あか")
	for range 20000 {
		text := []rune{starters[rng.IntN(len(starters))]}
		for range 1 + rng.IntN(8) {
			pick := all
			if rng.IntN(3) == 0 {
				pick = starters
			}
			text = append(text, pick[rng.IntN(len(pick))])
		}
		for f, g := range forms {
			if got, want := Normalize(f, string(text)), g.String(string(text)); got != want {
				t.Fatalf("%d of %U: %+q, want %+q", f, text, got, want)
			}
		}
	}
}

// Claim: what makes the originals differ from x/text: a run of marks is never
// cut, and characters younger than their tables stay (found by sweep.py).
func TestNormalizeDiffersFromText(t *testing.T) {
	long := "a" + strings.Repeat("\u0323", 40) + "\u0301"
	if got := Normalize(NFD, long); got != long {
		t.Errorf("a run of 41 marks became %+q", got)
	}
	if got := Normalize(NFKC, "\u32ff\U00011935\U00011930"); got != "\u32ff\U00011935\U00011930" {
		t.Errorf("young characters became %+q", got)
	}
}

// Claim: the categories are complete: every code point is in exactly one.
func TestCategoriesAreComplete(t *testing.T) {
	n := 0
	for _, major := range []string{"L", "M", "N", "P", "S", "Z", "C"} {
		for _, r := range mustRanges(major) {
			n += int(r.Last - r.First + 1)
		}
	}
	if n != 0x110000-2048 {
		t.Errorf("categories hold %d code points", n)
	}
	if Lower()['İ'] != "i\u0307" || !Spaces().Has('\u0085') || Words().Has('-') {
		t.Error("sets are wrong")
	}
}

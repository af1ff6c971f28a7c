package bpe

import (
	"encoding/json"
	"os"
	"testing"
)

// Claim: every code point is classed as golden/data/tokenizer/classes.json has it.
func TestClassesOnEveryCodePoint(t *testing.T) {
	data, err := os.ReadFile("../testdata/classes.json")
	if err != nil {
		t.Fatal(err)
	}
	var ranges struct{ L, N, S [][2]rune }
	if err := json.Unmarshal(data, &ranges); err != nil {
		t.Fatal(err)
	}
	want := make([]class, 0x110000)
	for c, list := range map[class][][2]rune{letter: ranges.L, number: ranges.N, space: ranges.S} {
		for _, r := range list {
			for p := r[0]; p <= r[1]; p++ {
				want[p] = c
			}
		}
	}
	s := newSplitter(GPT2)
	for r := rune(0); r < 0x110000; r++ {
		if r >= 0xd800 && r < 0xe000 {
			continue // surrogates are not characters
		}
		if got, _ := s.at([]byte(string(r)), 0); got&kindMask != want[r] {
			t.Fatalf("%U is classed %d, want %d", r, got, want[r])
		}
	}
}

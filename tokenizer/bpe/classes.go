package bpe

import (
	"sync"

	"monotron/tokenizer/uni"
)

// class is what the patterns see of a character. kind() is one of other,
// letter, number and space; the bits above it tell letters and marks apart
// for patterns that split by case.
type class uint8

const (
	other  class = iota
	letter       // L
	number       // N
	space        // White_Space

	kindMask class = 3

	upper class = 4 // Lu Lt Lm Lo M: may begin a word
	lower class = 8 // Ll Lm Lo M: may end one
)

// classTable holds the class of every code point below its length; all above
// are other. It is filled on first use: 200 KB that few commands need.
var classTable = sync.OnceValue(func() []class {
	table := make([]class, 0x110000)
	for _, a := range []struct {
		class class
		sets  []string
	}{
		{letter | upper, []string{"Lu", "Lt"}},
		{letter | lower, []string{"Ll"}},
		{letter | upper | lower, []string{"Lm", "Lo"}},
		{other | upper | lower, []string{"M"}},
		{number, []string{"N"}},
		{space, []string{"space"}},
	} {
		for _, name := range a.sets {
			list, _ := uni.Ranges(name)
			for _, r := range list {
				for c := r.First; c <= r.Last; c++ {
					table[c] = a.class
				}
			}
		}
	}
	end := len(table)
	for table[end-1] == other {
		end--
	}
	return table[:end:end]
})

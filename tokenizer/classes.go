package tokenizer

import "sync"

//go:generate go run ./internal/classgen testdata/classes.json classes_gen.go

// class is what GPT-2's pattern sees of a character.
type class uint8

const (
	other class = iota
	letter
	number
	space
)

type codeRange struct{ first, last rune }

// classTable holds the class of every code point below its length; all above
// are other. It is filled on first use: 200 KB that few commands need.
var classTable = sync.OnceValue(func() []class {
	end := rune(0)
	all := []struct {
		class  class
		ranges []codeRange
	}{{letter, letterRanges[:]}, {number, numberRanges[:]}, {space, spaceRanges[:]}}
	for _, a := range all {
		end = max(end, a.ranges[len(a.ranges)-1].last+1)
	}
	table := make([]class, end)
	for _, a := range all {
		for _, r := range a.ranges {
			for c := r.first; c <= r.last; c++ {
				table[c] = a.class
			}
		}
	}
	return table
})

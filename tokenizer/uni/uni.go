// Package uni knows what the original tokenizers think of every code point:
// general categories (Unicode 16), words and digits, case, accents. Go's own
// tables are of version 15, in which 5,004 code points differ.
package uni

import (
	_ "embed"
	"encoding/binary"
	"sync"
)

// tables.bin is written by scripts/crosscheck-tokenizers/sweep.py, which shows
// every code point to the originals.
//
//go:generate python3 ../../scripts/crosscheck-tokenizers/sweep.py tables.bin
//go:embed tables.bin
var tablesFile []byte

// Range is an inclusive range of code points.
type Range struct{ First, Last rune }

// records cuts the file into its named bodies.
var records = sync.OnceValue(func() map[string][]byte {
	out := map[string][]byte{}
	for r := (reader{tablesFile}); len(r.b) > 0; {
		name := string(r.take(r.varint()))
		out[name] = r.take(r.varint())
	}
	return out
})

type reader struct{ b []byte }

func (r *reader) varint() int {
	v, n := binary.Uvarint(r.b)
	r.b = r.b[n:]
	return int(v)
}

func (r *reader) take(n int) []byte {
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

// Ranges lists a set's code points in order: a general category ("Lu"), a
// major category ("L"), a script ("Han"), or one of the sets "word", "space",
// "digit" (\w, \s and \d of a regular expression), "rust word", "numeric",
// "punctuation", "accent". ok is false for a name that is not there.
func Ranges(name string) (list []Range, ok bool) {
	if minor, found := majors[name]; found {
		for _, m := range minor {
			more, _ := Ranges(m)
			list = append(list, more...)
		}
		return list, true
	}
	body, ok := records()[name]
	end := 0
	for r := (reader{body}); len(r.b) > 0; {
		first := end + r.varint()
		end = first + r.varint()
		list = append(list, Range{rune(first), rune(end - 1)})
	}
	return list, ok
}

// majors are the categories that join others.
var majors = map[string][]string{
	"L": {"Lu", "Ll", "Lt", "Lm", "Lo"},
	"M": {"Mn", "Mc", "Me"},
	"N": {"Nd", "Nl", "No"},
	"P": {"Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"},
	"S": {"Sm", "Sc", "Sk", "So"},
	"Z": {"Zs", "Zl", "Zp"},
	"C": {"Cc", "Cf", "Co", "Cn"},
}

// Set is a set of code points, a bit each.
type Set [0x110000 / 64]uint64

// NewSet is the union of the named sets of Ranges.
func NewSet(names ...string) *Set {
	s := new(Set)
	for _, name := range names {
		list, ok := Ranges(name)
		if !ok {
			panic("uni: no set is called " + name)
		}
		for _, r := range list {
			for c := r.First; c <= r.Last; c++ {
				s[c>>6] |= 1 << (c & 63)
			}
		}
	}
	return s
}

// Has says whether r, a valid code point, is in the set.
func (s *Set) Has(r rune) bool { return s[r>>6]>>(r&63)&1 != 0 }

var (
	// Words are the characters of \w as Rust's regular expressions have it.
	Words = sync.OnceValue(func() *Set { return NewSet("rust word") })
	// Spaces have the property White_Space.
	Spaces = sync.OnceValue(func() *Set { return NewSet("space") })
	// Numerics are Nd, Nl and No as Rust's char has them.
	Numerics = sync.OnceValue(func() *Set { return NewSet("numeric") })
	// Punctuation is what the splitter of that name cuts off.
	Punctuation = sync.OnceValue(func() *Set { return NewSet("punctuation") })
	// Accents are what StripAccents drops.
	Accents = sync.OnceValue(func() *Set { return NewSet("accent") })
)

// Lower maps each character that lowercasing changes to its lower case.
var Lower = sync.OnceValue(func() map[rune]string { return mapping("lower") })

func mapping(name string) map[rune]string {
	out := map[rune]string{}
	end := 0
	for r := (reader{records()[name]}); len(r.b) > 0; {
		c := end + r.varint()
		out[rune(c)] = string(r.take(r.varint()))
		end = c + 1
	}
	return out
}

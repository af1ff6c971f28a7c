package uni

import (
	"slices"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Form is a normalization form.
type Form int

const (
	NFC Form = iota
	NFD
	NFKC
	NFKD
)

func (f Form) text() norm.Form {
	return [...]norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD}[f]
}

// Normalize puts text, which is UTF-8, in the form f as the originals do: their
// tables are older than x/text's, so younger characters stay as they are; and
// no run of marks is cut, which x/text does after 30.
func Normalize(f Form, text string) string {
	if f.text().IsNormalString(text) {
		return text
	}
	p := f.decompose(text)
	if f == NFC || f == NFKC {
		p = compose(p)
	}
	out := make([]byte, 0, len(text)+8)
	for _, c := range p {
		out = utf8.AppendRune(out, c.r)
	}
	return string(out)
}

// placed is a character with its combining class.
type placed struct {
	r   rune
	ccc uint8
}

// known are the characters that decompose or combine in the originals' tables.
var known = sync.OnceValue(func() *Set { return NewSet("normal") })

const (
	hangulFirst, hangulLast      = 0xac00, 0xd7a3
	leadFirst, vowelFirst        = 0x1100, 0x1161
	tailFirst                    = 0x11a7 // one before the first tail
	leads, vowels, tails    rune = 19, 21, 28
)

// decompose takes characters apart and sorts each run of marks by class.
func (f Form) decompose(text string) []placed {
	compat := f == NFKC || f == NFKD
	form := norm.NFD
	if compat {
		form = norm.NFKD
	}
	out := make([]placed, 0, len(text)+8)
	marks := 0 // length of the run of marks at the end of out
	// A character of class 0 ends a run of marks, which is then in canonical order.
	add := func(r rune, ccc uint8) {
		out = append(out, placed{r, ccc})
		if ccc != 0 {
			marks++
			return
		}
		sortMarks(out[len(out)-1-marks : len(out)-1])
		marks = 0
	}
	for _, r := range text {
		switch {
		// Hangul by formula (Unicode, section 3.12), others by the tables.
		case r >= hangulFirst && r <= hangulLast:
			i := r - hangulFirst
			add(leadFirst+i/(vowels*tails), 0)
			add(vowelFirst+i%(vowels*tails)/tails, 0)
			if t := i % tails; t > 0 {
				add(tailFirst+t, 0)
			}
		case r < 0x80 || !known().Has(r):
			add(r, 0)
		default:
			p := form.PropertiesString(string(r))
			d := p.Decomposition()
			if d == nil {
				add(r, p.CCC())
			}
			for len(d) > 0 {
				c, n := utf8.DecodeRune(d)
				add(c, norm.NFD.Properties(d).CCC())
				d = d[n:]
			}
		}
	}
	sortMarks(out[len(out)-marks:])
	return out
}

func sortMarks(run []placed) {
	if len(run) > 1 {
		slices.SortStableFunc(run, func(a, b placed) int { return int(a.ccc) - int(b.ccc) })
	}
}

// compose joins each mark with the last starter before it, unless something
// between them has the mark's class or is a starter.
func compose(p []placed) []placed {
	out := p[:0]
	starter := -1 // its position in out
	for _, c := range p {
		if starter >= 0 {
			last := out[len(out)-1]
			adjacent := len(out)-1 == starter
			if adjacent || last.ccc != 0 && last.ccc < c.ccc {
				if joined, ok := pair(out[starter].r, c.r); ok {
					out[starter].r = joined
					continue
				}
			}
		}
		if c.ccc == 0 {
			starter = len(out)
		}
		out = append(out, c)
	}
	return out
}

func pair(a, b rune) (rune, bool) {
	if l, v := a-leadFirst, b-vowelFirst; l >= 0 && l < leads && v >= 0 && v < vowels {
		return hangulFirst + (l*vowels+v)*tails, true
	}
	if s, t := a-hangulFirst, b-tailFirst; s >= 0 && a <= hangulLast && s%tails == 0 && t > 0 && t < tails {
		return a + t, true
	}
	c, ok := pairs()[[2]rune{a, b}]
	return c, ok
}

// pairs are the characters that two others compose to.
var pairs = sync.OnceValue(func() map[[2]rune]rune {
	out := map[[2]rune]rune{}
	for _, r := range mustRanges("normal") {
		for c := r.First; c <= r.Last; c++ {
			s := string(c)
			d := norm.NFD.String(s)
			if d == s || norm.NFC.String(s) != s || c >= hangulFirst && c <= hangulLast {
				continue
			}
			last, n := utf8.DecodeLastRuneInString(d)
			first := []rune(norm.NFC.String(d[:len(d)-n]))
			if len(first) == 1 {
				out[[2]rune{first[0], last}] = c
			}
		}
	}
	return out
})

func mustRanges(name string) []Range {
	list, ok := Ranges(name)
	if !ok {
		panic("uni: no set is called " + name)
	}
	return list
}

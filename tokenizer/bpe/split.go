package bpe

import (
	"unicode/utf8"
	"unsafe"
)

// next is the end of the piece that starts at text[i], i < len(text).
func (s *splitter) next(text []byte, i int) int {
	if s.gpt2 {
		return s.nextGPT2(text, i)
	}
	return s.nextGPT4(text, i)
}

// nextGPT4 follows the alternatives of the pattern in their order.
func (s *splitter) nextGPT4(text []byte, i int) int {
	b := text[i]
	if b == '\'' && s.contractions == apart {
		if n := anyContraction(text[i+1:]); n > 0 {
			return i + 1 + n
		}
	}
	// Letters, with a character before them and, in newer patterns, a contraction behind.
	c, n := s.at(text, i)
	if end := s.word(text, i, c, n); end > 0 {
		if s.contractions == appended && end < len(text) && text[end] == '\'' {
			if n := anyContraction(text[end+1:]); n > 0 {
				end += 1 + n
			}
		}
		return end
	}
	// Numbers and marks; marks may have a blank before them.
	switch c & kindMask {
	case number:
		return s.number(text, i+n)
	case other:
		return s.marks(text, i+n)
	}
	if b == ' ' && i+1 < len(text) {
		if after, m := s.at(text, i+1); after&kindMask == other {
			return s.marks(text, i+1+m)
		}
	}
	return s.white(text, i, n)
}

// word is the end of a word that starts with the character at i, of class c
// and n bytes, or with the letter after it; 0 where there is none.
func (s *splitter) word(text []byte, i int, c class, n int) int {
	if s.cases {
		return s.casedWord(text, i, c, n)
	}
	if c&kindMask == letter {
		return s.run(text, i+n, letter)
	}
	if c == number || text[i] == '\n' || text[i] == '\r' || i+n >= len(text) {
		return 0
	}
	if after, m := s.at(text, i+n); after&kindMask == letter {
		return s.run(text, i+n+m, letter)
	}
	return 0
}

// casedWord tries, in this order, upper* lower+ and upper+ lower*, each first
// behind one character other than a letter, number or line end, then without.
func (s *splitter) casedWord(text []byte, i int, c class, n int) int {
	prefix := c&kindMask != letter && c != number && text[i] != '\n' && text[i] != '\r'
	if prefix {
		if end := s.upperLower(text, i+n); end > 0 {
			return end
		}
	}
	if c&(upper|lower) != 0 {
		if end := s.upperLower(text, i); end > 0 {
			return end
		}
	}
	if prefix {
		if end := s.uppers(text, i+n); end > i+n {
			return end
		}
	}
	if end := s.uppers(text, i); end > i {
		return end
	}
	return 0
}

// uppers is the end of the run of upper from i on.
func (s *splitter) uppers(text []byte, i int) int {
	for i < len(text) {
		c, n := s.at(text, i)
		if c&upper == 0 {
			break
		}
		i += n
	}
	return i
}

// upperLower matches upper* lower+. Characters of both classes may end the
// first run or begin the second: the first is as long as the second allows.
func (s *splitter) upperLower(text []byte, i int) int {
	both := 0 // end of the last character of both classes in the first run
	for i < len(text) {
		c, n := s.at(text, i)
		if c&upper == 0 {
			break
		}
		i += n
		if c&lower != 0 {
			both = i
		}
	}
	end := i
	for end < len(text) {
		c, n := s.at(text, end)
		if c&lower == 0 {
			break
		}
		end += n
	}
	if end > i {
		return end
	}
	return both
}

// number is the end of at most s.digits numbers of which one was read.
func (s *splitter) number(text []byte, i int) int {
	for left := s.digits - 1; left != 0 && i < len(text); left-- {
		c, n := s.at(text, i)
		if c != number {
			break
		}
		i += n
	}
	return i
}

// marks is the end of a run of other, of which one was read, and of the line
// ends behind it.
func (s *splitter) marks(text []byte, i int) int {
	i = s.run(text, i, other)
	for i < len(text) && (text[i] == '\n' || text[i] == '\r' || text[i] == '/' && s.slash) {
		i++
	}
	return i
}

// white is the end of a piece of white space: up to the last line end of the
// run where there is one, else as in GPT-2's pattern.
func (s *splitter) white(text []byte, i, n int) int {
	line, last, end := 0, i, i+n
	if text[i] == '\n' || text[i] == '\r' {
		line = end
	}
	for end < len(text) {
		c, n := s.at(text, end)
		if c&kindMask != space {
			break
		}
		last, end = end, end+n
		if b := text[last]; b == '\n' || b == '\r' {
			line = end
		}
	}
	switch {
	case line > 0:
		return line
	case end < len(text) && last > i:
		return last
	}
	return end
}

// anyContraction is the length of s, d, m, t, ll, ve or re of any case at the
// start of text. The long s is an s in another case.
func anyContraction(text []byte) int {
	if len(text) == 0 {
		return 0
	}
	switch text[0] | 0x20 {
	case 's', 'd', 'm', 't':
		return 1
	case 'l':
		if len(text) > 1 && text[1]|0x20 == 'l' {
			return 2
		}
	case 'v', 'r':
		if len(text) > 1 && text[1]|0x20 == 'e' {
			return 2
		}
	}
	if r, n := utf8.DecodeRune(text); r == 'ſ' {
		return n
	}
	return 0
}

// Cutter gives a function that finds the end of the piece starting at text[i].
func Cutter(p Pattern) func(text string, i int) int {
	s := newSplitter(p)
	return func(text string, i int) int {
		return s.next(unsafe.Slice(unsafe.StringData(text), len(text)), i)
	}
}

package bpe

import "unicode/utf8"

// splitter cuts text into pieces by a known pattern. A piece's kind is decided
// by its first one or two characters, so next to nothing is read twice.
type splitter struct {
	classes []class
	ascii   *[256]class // of bytes; from 0x80 on a class that ends every run
	Pattern
}

// multibyte marks the first byte of a longer character in splitter.ascii.
const multibyte class = 0x80

func newSplitter(p Pattern) splitter {
	s := splitter{classTable(), new([256]class), p}
	for b := range s.ascii {
		if s.ascii[b] = multibyte; b < utf8.RuneSelf {
			s.ascii[b] = s.classes[b]
		}
	}
	return s
}

// at is the class and the length in bytes of the character at text[i].
func (s *splitter) at(text []byte, i int) (class, int) {
	if b := text[i]; b < utf8.RuneSelf {
		return s.ascii[b], 1
	}
	r, n := utf8.DecodeRune(text[i:])
	if int(r) < len(s.classes) {
		return s.classes[r], n
	}
	return other, n
}

// nextGPT2 is the end of the piece that starts at text[i], i < len(text), by
//
//	'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func (s *splitter) nextGPT2(text []byte, i int) int {
	if text[i] == '\'' {
		if n := contraction(text[i+1:]); n > 0 {
			return i + 1 + n
		}
	}
	c, n := s.at(text, i)
	if text[i] == ' ' && i+1 < len(text) {
		if after, m := s.at(text, i+1); after&kindMask != space {
			return s.run(text, i+1+m, after&kindMask)
		}
	}
	if c&kindMask == space {
		return s.spaces(text, i, n)
	}
	return s.run(text, i+n, c&kindMask)
}

// run is the end of the characters of one kind from i on.
func (s *splitter) run(text []byte, i int, kind class) int {
	for i < len(text) {
		c := s.ascii[text[i]]
		if c&(kindMask|multibyte) == kind {
			i++
			continue
		}
		if c != multibyte {
			return i
		}
		found, n := s.at(text, i)
		if found&kindMask != kind {
			return i
		}
		i += n
	}
	return i
}

// spaces is the end of a piece of white space: the complete run at the end of the
// text; otherwise all but the run's last character, which belongs to what
// follows, unless it is the only one.
func (s *splitter) spaces(text []byte, i, n int) int {
	last, end := i, i+n
	for end < len(text) {
		c, n := s.at(text, end)
		if c&kindMask != space {
			if last > i {
				return last
			}
			return end
		}
		last, end = end, end+n
	}
	return end
}

// contraction is the length of s, d, m, t, ll, ve or re at the start of text.
func contraction(text []byte) int {
	if len(text) == 0 {
		return 0
	}
	switch text[0] {
	case 's', 'd', 'm', 't':
		return 1
	case 'l':
		if len(text) > 1 && text[1] == 'l' {
			return 2
		}
	case 'v', 'r':
		if len(text) > 1 && text[1] == 'e' {
			return 2
		}
	}
	return 0
}

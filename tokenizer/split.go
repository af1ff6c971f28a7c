package tokenizer

import "unicode/utf8"

// splitter cuts text into GPT-2's pieces. It is the pattern
//
//	'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// written out: a piece's kind is decided by its first one or two characters, so
// nothing is ever read twice but the last character of a run of white space.
type splitter struct {
	classes []class
}

// at is the class and the length in bytes of the character at text[i].
func (s splitter) at(text []byte, i int) (class, int) {
	if b := text[i]; b < utf8.RuneSelf {
		return s.classes[b], 1
	}
	r, n := utf8.DecodeRune(text[i:])
	if int(r) < len(s.classes) {
		return s.classes[r], n
	}
	return other, n
}

// next is the end of the piece that starts at text[i]; i < len(text).
func (s splitter) next(text []byte, i int) int {
	if text[i] == '\'' {
		if n := contraction(text[i+1:]); n > 0 {
			return i + 1 + n
		}
	}
	c, n := s.at(text, i)
	if text[i] == ' ' && i+1 < len(text) {
		if after, m := s.at(text, i+1); after != space {
			return s.run(text, i+1+m, after)
		}
	}
	if c == space {
		return s.spaces(text, i, n)
	}
	return s.run(text, i+n, c)
}

// run is the end of the characters of class c from i on.
func (s splitter) run(text []byte, i int, c class) int {
	for i < len(text) {
		if b := text[i]; b < utf8.RuneSelf {
			if s.classes[b] != c {
				return i
			}
			i++
			continue
		}
		found, n := s.at(text, i)
		if found != c {
			return i
		}
		i += n
	}
	return i
}

// spaces is the end of a piece of white space: the whole run at the end of the
// text; otherwise all but the run's last character, which belongs to what
// follows, unless it is the only one.
func (s splitter) spaces(text []byte, i, n int) int {
	last, end := i, i+n
	for end < len(text) {
		c, n := s.at(text, end)
		if c != space {
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

package jsonl

import (
	"fmt"
	"unicode/utf8"
)

// NotText says where a JSON value holds bytes or escapes that stand for no character.
type NotText struct {
	Key  string // of the top-level object whose value holds it; "" where there is none
	At   int    // byte, from 0
	What string
}

func (e *NotText) Error() string {
	return fmt.Sprintf("byte %d: %s", e.At, e.What)
}

// surrogate says what a half of a surrogate pair is.
const surrogate = "a lone surrogate (\\ud800 to \\udfff without the other half), which is not a character"

// CheckText finds the first string of a JSON value that is not text: bytes that are not UTF-8, or
// a lone surrogate. Nil: there is none. Other errors of JSON are not reported.
func CheckText(data []byte) error {
	s := textScan{data: data}
	if !utf8.Valid(data) {
		for s.bad = 0; utf8.FullRune(data[s.bad:]); {
			r, n := utf8.DecodeRune(data[s.bad:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			s.bad += n
		}
		return s.find(true)
	}
	return s.find(false)
}

// textScan goes through a JSON value once, and knows under which top-level key it is.
type textScan struct {
	data  []byte
	bad   int // the first byte that is not UTF-8
	depth int
	key   string
	named bool // the next string at depth 1 is a value
}

// find goes to the bad byte, where there is one, or to the first lone surrogate.
func (s *textScan) find(bad bool) error {
	for i := 0; i < len(s.data); i++ {
		if bad && i >= s.bad {
			break
		}
		// Depth and key are kept, since the error names the field of the top level.
		switch s.data[i] {
		case '{', '[':
			s.depth++
		case '}', ']':
			s.depth--
		case ':':
			s.named = s.named || s.depth == 1
		case ',':
			s.named = s.named && s.depth > 1
		// A string is skipped in one go, as brackets in it do not count.
		case '"':
			end, lone := s.stringEnd(i + 1)
			if lone >= 0 && !bad {
				return &NotText{s.key, lone, surrogate}
			}
			if bad && end >= s.bad {
				return &NotText{s.key, s.bad, fmt.Sprintf("0x%02x is not UTF-8", s.data[s.bad])}
			}
			if s.depth == 1 && !s.named {
				s.key = string(s.data[i+1 : min(end, i+1+longestKey)])
			}
			i = end
		}
	}
	// The bad byte stands outside every string.
	if bad {
		return &NotText{s.key, s.bad, fmt.Sprintf("0x%02x is not UTF-8", s.data[s.bad])}
	}
	return nil
}

// longestKey of a field that is named.
const longestKey = 64

// stringEnd is the closing quote of the string whose first byte is at i, or the end of data;
// lone is the position of a lone surrogate in it, or -1.
func (s *textScan) stringEnd(i int) (end, lone int) {
	lone = -1
	for i < len(s.data) {
		i += plain(s.data[i:])
		if i == len(s.data) || s.data[i] == '"' {
			break
		}
		n := 1
		if s.data[i] == '\\' {
			if n = max(1, escapeLen(s.data[i:])); n == 6 {
				var buffer [utf8.UTFMax]byte
				if n, _ = unicodeEscape(buffer[:0], s.data[i:]); n == 0 {
					if n = 6; lone < 0 {
						lone = i
					}
				}
			}
		}
		i += n
	}
	return i, lone
}

package uni

import (
	"strings"
	"unicode/utf8"
)

// Lossy is b as text. Bytes that are not a character become U+FFFD, one for each
// longest beginning of a character, as Rust and Python have it.
func Lossy(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		n := 0
		for n < len(b) {
			r, width := utf8.DecodeRune(b[n:])
			if r == utf8.RuneError && width == 1 {
				break
			}
			n += width
		}
		out.Write(b[:n])
		if b = b[n:]; len(b) > 0 {
			out.WriteString("\uFFFD")
			b = b[Broken(b):]
		}
	}
	return out.String()
}

// Broken is the length of the longest beginning of b that begins a character.
// b starts with no complete character and is not empty.
func Broken(b []byte) int {
	low, high, most := byte(0x80), byte(0xbf), 1 // of the second byte; bytes before the last
	switch c := b[0]; {
	case c == 0xe0:
		low, most = 0xa0, 2
	case c == 0xed:
		high, most = 0x9f, 2
	case c >= 0xe1 && c <= 0xef:
		most = 2
	case c == 0xf0:
		low, most = 0x90, 3
	case c == 0xf4:
		high, most = 0x8f, 3
	case c >= 0xf1 && c <= 0xf3:
		most = 3
	}
	n := 1
	for n < most && n < len(b) && b[n] >= low && b[n] <= high {
		low, high = 0x80, 0xbf
		n++
	}
	return n
}

package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

func sprintf(format string, args ...any) string { return fmt.Sprintf(format, args...) }

var simpleEscapes = map[byte]string{'\n': "", '\\': "\\", '\'': "'", '"': "\"", 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v"}

// unescape reads the escapes of a string as Jinja does: non-ASCII characters become Python's
// backslash escapes first, so that a backslash before one of them escapes that escape.
func unescape(s string, refuse func(string, ...any)) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			i++
			continue
		}
		i++
		if i == len(s) {
			refuse(`\ at end of string`)
		}
		c := s[i]
		simple, known := simpleEscapes[c]
		// A letter, octal digits, hexadecimal digits; what is unknown keeps its backslash.
		switch {
		case known:
			b.WriteString(simple)
			i++
		case c >= '0' && c <= '7':
			n := 1
			for n < 3 && i+n < len(s) && s[i+n] >= '0' && s[i+n] <= '7' {
				n++
			}
			code, _ := strconv.ParseUint(s[i:i+n], 8, 32)
			b.WriteRune(rune(code))
			i += n
		case c == 'x' || c == 'u' || c == 'U':
			i = hexEscape(&b, s, i, refuse)
		case c == 'N':
			unsupported(`the escape \N{...} in a string`)
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRuneInString(s[i:])
			b.WriteString(backslashed(r))
			i += n
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
			i++
		}
	}
	return b.String()
}

// hexEscape reads \x, \u or \U, whose letter is s[i], and returns what follows.
func hexEscape(b *strings.Builder, s string, i int, refuse func(string, ...any)) int {
	n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[i]]
	if i+1+n > len(s) {
		refuse("truncated \\%c escape", s[i])
	}
	code, err := strconv.ParseUint(s[i+1:i+1+n], 16, 32)
	switch {
	case err != nil:
		refuse("truncated \\%c escape", s[i])
	case code > utf8.MaxRune:
		refuse("illegal Unicode character")
	case code >= 0xd800 && code < 0xe000:
		unsupported("a surrogate (\\%s) in a string", s[i:i+1+n])
	}
	b.WriteRune(rune(code))
	return i + 1 + n
}

// backslashed is what Python's error handler backslashreplace writes after the backslash.
func backslashed(c rune) string {
	switch {
	case c < 0x100:
		return fmt.Sprintf(`\x%02x`, c)
	case c < 0x10000:
		return fmt.Sprintf(`\u%04x`, c)
	}
	return fmt.Sprintf(`\U%08x`, c)
}

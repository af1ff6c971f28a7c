package chat

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// pythonText reads a string of Python up to its closing quote; after is what follows that. plain: nothing is escaped, and
// a quote closes the string only before what may follow a value.
func pythonText(text string, quote byte, plain bool) (s, after string, found bool) {
	var out strings.Builder
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == quote && (!plain || endsValue(text[i+1:])):
			return out.String(), text[i+1:], true
		case c != '\\':
			out.WriteByte(c)
			i++
		case plain:
			if i+1 < len(text) && text[i+1] == quote && !endsValue(text[i+2:]) {
				i++ // a quote that is escaped all the same
			}
			out.WriteByte(text[i])
			i++
		default:
			decoded, n := escape(text[i:])
			out.WriteString(decoded)
			i += n
		}
	}
	return "", "", false
}

// endsValue reports whether text may follow a value.
func endsValue(text string) bool {
	text = strings.TrimLeft(text, " \n\t")
	return text == "" || strings.ContainsRune(",:)]}", rune(text[0]))
}

// simple are the escapes of one character.
var simple = map[byte]string{'\n': "", '\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v"}

// escape decodes the escape that text begins with, and gives its length. One that Python does not know stands for itself.
func escape(text string) (decoded string, n int) {
	if len(text) < 2 {
		return text, len(text)
	}
	if s, known := simple[text[1]]; known {
		return s, 2
	}
	// A number: octal, or of a fixed count of hexadecimal digits.
	digits, base, from := 0, 16, 2
	switch c := text[1]; {
	case c >= '0' && c <= '7':
		for base, from = 8, 1; digits < 3 && from+digits < len(text) && text[from+digits] >= '0' && text[from+digits] <= '7'; digits++ {
		}
	case c == 'x':
		digits = 2
	case c == 'u':
		digits = 4
	case c == 'U':
		digits = 8
	}
	if digits > 0 && from+digits <= len(text) {
		if v, err := strconv.ParseUint(text[from:from+digits], base, 31); err == nil && utf8.ValidRune(rune(v)) {
			return string(rune(v)), from + digits
		}
	}
	return text[:2], 2
}

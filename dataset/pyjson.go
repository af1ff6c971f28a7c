package dataset

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// pyDict is a Python dict in its order.
type pyDict []pyItem

type pyItem struct {
	key   string
	value any // nil, int64, float64, string, []any, pyDict
}

// pyJSON is json.dumps(v, indent=4).
func pyJSON(v any) string {
	var b strings.Builder
	writePy(&b, v, "\n")
	return b.String()
}

func writePy(b *strings.Builder, v any, newline string) {
	inner := newline + "    "
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case float64:
		b.WriteString(pyFloat(v))
	case string:
		writePyString(b, v)
	case []any:
		writePyList(b, "[", "]", newline, len(v), func(i int) { writePy(b, v[i], inner) })
	case pyDict:
		writePyList(b, "{", "}", newline, len(v), func(i int) {
			writePyString(b, v[i].key)
			b.WriteString(": ")
			writePy(b, v[i].value, inner)
		})
	default:
		panic(fmt.Sprintf("dataset: %T has no JSON form here", v))
	}
}

func writePyList(b *strings.Builder, open, shut, newline string, n int, item func(i int)) {
	b.WriteString(open)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(newline + "    ")
		item(i)
	}
	if n > 0 {
		b.WriteString(newline)
	}
	b.WriteString(shut)
}

// pyFloat is repr of a float: the shortest digits that read back, an exponent
// below 1e-4 and from 1e16 on, always with a sign of being a float.
func pyFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case math.IsNaN(f):
		return "NaN"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// writePyString escapes everything outside ASCII; a byte that is not UTF-8 (in a
// path) is the lone surrogate that Python makes of it.
func writePyString(b *strings.Builder, s string) {
	b.WriteByte('"')
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(b, `\udc%02x`, s[i])
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r >= ' ' && r < 0x7f || r == 0x7f:
			b.WriteRune(r)
		case strings.ContainsRune("\b\f\n\r\t", r):
			b.WriteString(map[rune]string{'\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}[r])
		case r > 0xffff:
			fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			fmt.Fprintf(b, `\u%04x`, r)
		}
		i += n
	}
	b.WriteByte('"')
}

package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// isSpace is str.isspace of one character.
func isSpace(c rune) bool {
	switch {
	case c >= '\t' && c <= '\r', c >= 0x1c && c <= 0x20, c == 0x85, c == 0xa0:
		return true
	case c < 0x1680:
		return false
	}
	return c == 0x1680 || c >= 0x2000 && c <= 0x200a || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000
}

// isLineEnd is what splitlines cuts at.
func isLineEnd(c rune) bool {
	return c >= '\n' && c <= '\r' || c >= 0x1c && c <= 0x1e || c == 0x85 || c == 0x2028 || c == 0x2029
}

func isAlpha(c rune) bool   { return unicode.IsLetter(c) }
func isDecimal(c rune) bool { return unicode.IsDigit(c) }
func isDigit(c rune) bool   { return unicode.IsDigit(c) || unicode.Is(digitMore, c) }
func isNumeric(c rune) bool { return unicode.IsNumber(c) || unicode.Is(numericMore, c) }
func isAlnum(c rune) bool   { return isAlpha(c) || isNumeric(c) }
func isWord(c rune) bool    { return isAlnum(c) || c == '_' }

func isLower(c rune) bool {
	return unicode.Is(unicode.Ll, c) || c > 127 && unicode.Is(unicode.Other_Lowercase, c)
}

func isUpper(c rune) bool {
	return unicode.Is(unicode.Lu, c) || c > 127 && unicode.Is(unicode.Other_Uppercase, c)
}

func isTitle(c rune) bool { return unicode.Is(unicode.Lt, c) }
func isCased(c rune) bool { return isLower(c) || isUpper(c) || isTitle(c) }

// digitMore are digits that are not decimal (superscripts, circled), as Python's isdigit knows.
var digitMore = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0xb2, 0xb3, 1}, {0xb9, 0xb9, 1}, {0x1369, 0x1371, 1}, {0x19da, 0x19da, 1}, {0x2070, 0x2070, 1},
		{0x2074, 0x2079, 1}, {0x2080, 0x2089, 1}, {0x2460, 0x2468, 1}, {0x2474, 0x247c, 1}, {0x2488, 0x2490, 1},
		{0x24ea, 0x24ea, 1}, {0x24f5, 0x24fd, 1}, {0x24ff, 0x24ff, 1}, {0x2776, 0x277e, 1}, {0x2780, 0x2788, 1},
		{0x278a, 0x2792, 1},
	},
	R32:         []unicode.Range32{{0x10a40, 0x10a43, 1}, {0x10e60, 0x10e68, 1}, {0x11052, 0x1105a, 1}, {0x1f100, 0x1f10a, 1}},
	LatinOffset: 2,
}

// notIdentifier are characters that Unicode's XID properties leave out of its ID properties;
// notStart are those that stand in identifiers, but not first.
var (
	notIdentifier = &unicode.RangeTable{R16: []unicode.Range16{
		{0x37a, 0x37a, 1}, {0x2e2f, 0x2e2f, 1}, {0x309b, 0x309c, 1}, {0xfc5e, 0xfc63, 1}, {0xfdfa, 0xfdfb, 1}, {0xfe70, 0xfe7e, 2},
	}}
	notStart = &unicode.RangeTable{R16: []unicode.Range16{{0xe33, 0xe33, 1}, {0xeb3, 0xeb3, 1}, {0xff9e, 0xff9f, 1}}}
)

// isIdentifier is str.isidentifier.
func isIdentifier(s string) bool {
	for i, c := range s {
		if c > 127 && (unicode.Is(notIdentifier, c) || i == 0 && unicode.Is(notStart, c)) {
			return false
		}
		start := c == '_' || unicode.IsLetter(c) || unicode.Is(unicode.Nl, c) || unicode.Is(unicode.Other_ID_Start, c)
		more := i > 0 && (unicode.In(c, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc, unicode.Other_ID_Continue))
		if !start && !more {
			return false
		}
	}
	return s != ""
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}

func casefold(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	var b strings.Builder
	for s != "" {
		at := strings.IndexFunc(s, isCherokee)
		if at < 0 {
			at = len(s)
		}
		b.WriteString(cases.Fold().String(s[:at]))
		s = s[at:]
		rest := strings.TrimLeftFunc(s, isCherokee)
		b.WriteString(s[:len(s)-len(rest)])
		s = rest
	}
	return b.String()
}

// isCherokee recognizes capitals that are folded to themselves, which the library has otherwise.
func isCherokee(c rune) bool { return c >= 0x13a0 && c <= 0x13f5 }

// titleOf is the title case of one character, which may be several.
func titleOf(c rune) string {
	if c < utf8.RuneSelf {
		return strings.ToUpper(string(c))
	}
	if up := upper(string(c)); utf8.RuneCountInString(up) == 1 {
		return string(unicode.ToTitle(c))
	}
	return cases.Title(language.Und, cases.NoLower).String(string(c))
}

// capitalize is str.capitalize.
func capitalize(s string) string {
	if s == "" {
		return ""
	}
	c, n := utf8.DecodeRuneInString(s)
	return titleOf(c) + lowerAfter(s, n)
}

// lowerAfter is the lower case of s[n:], whose sigmas see what stands before them.
func lowerAfter(s string, n int) string {
	if rest := s[n:]; isASCII(rest) {
		return strings.ToLower(rest)
	}
	first := lower(s[:n])
	return strings.TrimPrefix(lower(s), first)
}

// title is str.title: a cased character after one that is not cased begins a word.
func title(s string) string {
	var b strings.Builder
	before := false
	low := ""
	if !isASCII(s) && strings.ContainsRune(s, 'Σ') {
		unsupported("title of a text with a capital sigma")
	}
	for _, c := range s {
		if before {
			low = lower(string(c))
			b.WriteString(low)
		} else {
			b.WriteString(titleOf(c))
		}
		before = isCased(c)
	}
	return b.String()
}

// swapcase is str.swapcase.
func swapcase(s string) string {
	var b strings.Builder
	for _, c := range s {
		switch {
		case c == 'Σ':
			unsupported("swapcase of a text with a capital sigma")
		case isUpper(c):
			b.WriteString(lower(string(c)))
		case isLower(c):
			b.WriteString(upper(string(c)))
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// cut is s[from:to] by code points, both within the text or beyond its end.
func cut(s string, from, to int) string {
	if isASCII(s) {
		return s[min(from, len(s)):max(min(from, len(s)), min(to, len(s)))]
	}
	start, end, n := len(s), len(s), 0
	for i := range s {
		if n == from {
			start = i
		}
		if n == to {
			end = i
			break
		}
		n++
	}
	if to <= from {
		return ""
	}
	return s[start:end]
}

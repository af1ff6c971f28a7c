package punkt

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// isSpace is \s of Python's re and str.isspace.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// ends are the characters that may end a sentence.
const ends = ".?!"

// nonWord are characters that no word contains; noStart those that no word
// begins with.
const (
	nonWord = "?!)\";}]*:@'({["
	noStart = "(\"`{[:;&#*@)}]-,"
)

func in(set string, r rune) bool { return r < utf8.RuneSelf && strings.IndexByte(set, byte(r)) >= 0 }

// words cuts a line into words, numbers and punctuation, periods left on.
func words(line string) (list []string) {
	for i := 0; i < len(line); {
		r, n := utf8.DecodeRuneInString(line[i:])
		if isSpace(r) {
			i += n
			continue
		}
		end := i + multi(line[i:])
		if end == i && !in(noStart, r) {
			end = wordEnd(line, i+n)
		}
		if end == i {
			end = i + n
		}
		list = append(list, line[i:end])
		i = end
	}
	return list
}

// wordEnd is where the word ends whose first character ends at i.
func wordEnd(line string, i int) int {
	for i < len(line) {
		r, n := utf8.DecodeRuneInString(line[i:])
		if endsWord(line, i) || r == ',' && (i+1 == len(line) || endsWord(line, i+1)) {
			return i
		}
		i += n
	}
	return i
}

func endsWord(line string, i int) bool {
	r, _ := utf8.DecodeRuneInString(line[i:])
	return isSpace(r) || in(nonWord, r) || multi(line[i:]) > 0
}

// multi is the length of a dash of several hyphens, or of an ellipsis (spaced or
// not), at the start of s.
func multi(s string) int {
	if s == "" || s[0] != '-' && s[0] != '.' {
		return 0
	}
	if n := len(s) - len(strings.TrimLeft(s, s[:1])); n >= 2 {
		return n
	}
	if s[0] == '-' {
		return 0
	}
	// at least two of (period, space), then a period
	at, pairs, end := 0, 0, 0
	for at < len(s) && s[at] == '.' {
		if pairs >= 2 {
			end = at + 1
		}
		r, n := utf8.DecodeRuneInString(s[at+1:])
		if n == 0 || !isSpace(r) {
			break
		}
		at += 1 + n
		pairs++
	}
	return end
}

// lower is Python's str.lower, which differs from Go's for a dotted capital I
// and for a sigma at the end of a word.
func lower(s string) string {
	if !strings.ContainsAny(s, "İΣ") {
		return strings.ToLower(s)
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == 'İ':
			b.WriteString("i\u0307")
		case r == 'Σ' && finalSigma(s, i):
			b.WriteRune('ς')
		default:
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

// finalSigma: a letter with case comes before, none after; marks and the like
// between are passed over.
func finalSigma(s string, at int) bool {
	before, after := false, false
	for _, r := range s[:at] {
		if !ignorable(r) {
			before = cased(r)
		}
	}
	for _, r := range s[at+len("Σ"):] {
		if !ignorable(r) {
			after = cased(r)
			break
		}
	}
	return before && !after
}

func cased(r rune) bool {
	return unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r) || unicode.In(r, unicode.Other_Uppercase, unicode.Other_Lowercase)
}

func ignorable(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) || strings.ContainsRune("'.:·’‘", r)
}

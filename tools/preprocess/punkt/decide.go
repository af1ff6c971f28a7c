package punkt

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// token is a word with what is known about its end.
type token struct {
	text string
	typ  string // in lower case, numbers as ##number##
	// ends: a sentence ends here. abbr, ellipsis: the period has another reason.
	ends, abbr, ellipsis bool
}

func newToken(text string) token {
	t := token{text: text, typ: lower(text)}
	if isNumeric(t.typ) {
		t.typ = "##number##"
	}
	return t
}

// hasEnd says whether a sentence ends in context before its last token.
func (p *Params) hasEnd(context string) bool {
	var list []token
	for line := range strings.SplitSeq(context, "\n") {
		for _, w := range words(line) {
			t := newToken(w)
			p.byType(&t)
			list = append(list, t)
		}
	}
	for i := 0; i+1 < len(list); i++ {
		p.byContext(&list[i], &list[i+1])
		if list[i].ends {
			return true
		}
	}
	return false
}

// byType is the first judgement, from the word alone.
func (p *Params) byType(t *token) {
	switch {
	case t.text == "." || t.text == "?" || t.text == "!":
		t.ends = true
	case len(t.text) >= 2 && strings.Trim(t.text, ".") == "":
		t.ellipsis = true
	case strings.HasSuffix(t.text, ".") && !strings.HasSuffix(t.text, ".."):
		word := lower(strings.TrimSuffix(t.text, "."))
		t.abbr = p.abbreviations[word] || p.abbreviations[word[strings.LastIndexByte(word, '-')+1:]]
		t.ends = !t.abbr
	}
}

// bare is the type without its final period.
func (t *token) bare() string {
	if len(t.typ) > 1 {
		return strings.TrimSuffix(t.typ, ".")
	}
	return t.typ
}

// key is the type as it stands in the parameters: without the period where a
// sentence ends.
func (t *token) key() string {
	if t.ends {
		return t.bare()
	}
	return t.typ
}

// byContext is the second judgement on a word with a period, from the word after it.
func (p *Params) byContext(t, next *token) {
	if !strings.HasSuffix(t.text, ".") {
		return
	}
	typ, nextKey, initial := t.bare(), next.key(), isInitial(t.text)
	if p.collocations[[2]string{typ, nextKey}] {
		t.ends, t.abbr = false, true
		return
	}
	if (t.abbr || t.ellipsis) && !initial {
		if p.starts(next) == yes || firstUpper(next.text) && p.starters[nextKey] {
			t.ends = true
			return
		}
	}
	if !initial && typ != "##number##" {
		return
	}
	switch s := p.starts(next); {
	case s == no,
		s == unknown && initial && firstUpper(next.text) && p.context[nextKey]&anyLower == 0:
		t.ends, t.abbr = false, true
	}
}

type judgement int

const (
	unknown judgement = iota
	yes
	no
)

// starts says whether t has the form of the first word of a sentence, from the case
// of its first letter and the cases it was seen with.
func (p *Params) starts(t *token) judgement {
	if len(t.text) == 1 && strings.Contains(";:,.!?", t.text) {
		return no
	}
	seen := p.context[t.key()]
	if firstUpper(t.text) && seen&anyLower != 0 && seen&internalUpper == 0 {
		return yes
	}
	if firstLower(t.text) && (seen&anyUpper != 0 || seen&initialLower == 0) {
		return no
	}
	return unknown
}

func firstUpper(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return unicode.IsUpper(r) || unicode.Is(unicode.Other_Uppercase, r)
}

func firstLower(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return unicode.IsLower(r) || unicode.Is(unicode.Other_Lowercase, r)
}

// isInitial: one letter and a period.
func isInitial(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return s[n:] == "." && (unicode.IsLetter(r) || r == '_' || unicode.IsNumber(r) && !unicode.IsDigit(r))
}

// isNumeric: a digit, perhaps after a sign and a point, then digits, points,
// commas and hyphens.
func isNumeric(s string) bool {
	s = strings.TrimPrefix(s, "-")
	if s != "" && (s[0] == '.' || s[0] == ',') {
		s = s[1:]
	}
	r, n := utf8.DecodeRuneInString(s)
	if !unicode.IsDigit(r) {
		return false
	}
	for _, r := range s[n:] {
		if !unicode.IsDigit(r) && r != ',' && r != '.' && r != '-' {
			return false
		}
	}
	return true
}

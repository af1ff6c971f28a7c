package hf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2"

	"monotron/internal/exitcode"
	"monotron/tokenizer/uni"
)

// expression is a pattern of a tokenizer.json. Such patterns are written for
// Oniguruma with its Unicode 16 tables; translate spells out every class so
// that regexp2 sees the same characters, and refuses what it cannot say.
type expression struct {
	re *regexp2.Regexp
}

// matchTime ends a search that a pattern makes endless: an error, not a hang.
const matchTime = 30 * time.Second

func compile(pattern string) (*expression, error) {
	t := translator{rest: pattern}
	out, err := t.alternatives(false)
	if err == nil && t.rest != "" {
		err = fmt.Errorf("unmatched bracket")
	}
	if err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "the pattern %.120q is not supported: %w", pattern, err)
	}
	re, err := regexp2.Compile(out, regexp2.None)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "the pattern %.120q is not supported: %w", pattern, err)
	}
	re.MatchTimeout = matchTime
	return &expression{re: re}, nil
}

// each calls visit with the bytes [from, to) of every match in text.
func (e *expression) each(text string, visit func(from, to int)) error {
	runes := []rune(text)
	position := make([]int, len(runes)+1)
	at := 0
	for i, r := range runes {
		position[i] = at
		at += utf8.RuneLen(r)
	}
	position[len(runes)] = at
	m, err := e.re.FindRunesMatch(runes)
	for ; err == nil && m != nil; m, err = e.re.FindNextMatch(m) {
		visit(position[m.Index], position[m.Index+m.Length])
	}
	return err
}

// translator rewrites a pattern from Oniguruma's (Ruby's) syntax.
type translator struct {
	rest  string
	depth int
}

func (t *translator) peek() byte {
	if t.rest == "" {
		return 0
	}
	return t.rest[0]
}

func (t *translator) take(s string) bool {
	if strings.HasPrefix(t.rest, s) {
		t.rest = t.rest[len(s):]
		return true
	}
	return false
}

func (t *translator) rune() rune {
	r, n := utf8.DecodeRuneInString(t.rest)
	t.rest = t.rest[n:]
	return r
}

// alternatives reads up to a closing bracket or the end; fold is (?i: ).
func (t *translator) alternatives(fold bool) (string, error) {
	if t.depth++; t.depth > 100 {
		return "", fmt.Errorf("brackets are nested too deeply")
	}
	defer func() { t.depth-- }()
	var b strings.Builder
	for t.rest != "" && t.peek() != ')' {
		if t.take("|") {
			b.WriteByte('|')
			continue
		}
		atom, err := t.atom(fold)
		if err != nil {
			return "", err
		}
		if atom, err = t.quantified(atom); err != nil {
			return "", err
		}
		b.WriteString(atom)
	}
	return b.String(), nil
}

// quantified adds what follows an atom; possessive is atomic in regexp2.
func (t *translator) quantified(atom string) (string, error) {
	// The count.
	q, counted := "", false
	switch t.peek() {
	case '*', '+', '?':
		q = string(t.rune())
	case '{':
		end := strings.IndexByte(t.rest, '}')
		if end < 0 {
			return "", fmt.Errorf("a { has no }")
		}
		low, high, comma := strings.Cut(t.rest[1:end], ",")
		if low == "" && comma {
			low = "0"
		}
		if _, err := strconv.ParseUint(low, 10, 16); err != nil {
			return "", fmt.Errorf("%s is not a valid count", t.rest[:end+1])
		}
		if _, err := strconv.ParseUint(high, 10, 16); err != nil && high != "" {
			return "", fmt.Errorf("%s is not a valid count", t.rest[:end+1])
		}
		q, counted = "{"+low+"}", true
		if comma {
			q = "{" + low + "," + high + "}"
		}
		t.rest = t.rest[end+1:]
	default:
		return atom, nil
	}
	// Lazy or possessive, where all engines agree what it means.
	possessive := false
	switch t.peek() {
	case '?':
		t.rune()
		q += "?"
		if counted && !strings.Contains(q, ",") {
			return "", fmt.Errorf("%s means different things in different programs", q)
		}
	case '+':
		if counted { // Ruby repeats the repetition; others make it possessive
			return "", fmt.Errorf("%s+ means different things in different programs", q)
		}
		t.rune()
		possessive = true
	}
	// Engines differ about a repetition of a repetition.
	if c := t.peek(); c == '*' || c == '+' || c == '?' || c == '{' {
		return "", fmt.Errorf("%s%c applies one quantifier to another", q, c)
	}
	if possessive {
		return "(?>" + atom + q + ")", nil
	}
	return atom + q, nil
}

// groups are the openings of a bracket that mean the same here.
var groups = []string{"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}

func (t *translator) atom(fold bool) (string, error) {
	switch c := t.peek(); c {
	case '(':
		// A group, with case folded or not inside.
		open := "(?:"
		switch {
		case t.take("(?i:"):
			fold = true
		case t.take("(?-i:"):
			fold = false
		default:
			found := false
			for _, g := range groups {
				if t.take(g) {
					open, found = g, true
					break
				}
			}
			if !found {
				if strings.HasPrefix(t.rest, "(?") {
					return "", fmt.Errorf("%.6q is not supported", t.rest)
				}
				t.rune()
			}
		}
		inner, err := t.alternatives(fold)
		if err != nil {
			return "", err
		}
		if !t.take(")") {
			return "", fmt.Errorf("a bracket is not closed")
		}
		return open + inner + ")", nil
	// A class, an escape, a dot, an anchor.
	case '[':
		s, err := t.class(fold)
		return s.String(), err
	case '\\':
		s, err := t.escape(fold)
		return s.String(), err
	case '.':
		t.rune()
		return `[^\n]`, nil
	case '^', '$':
		t.rune()
		return "(?m:" + string(c) + ")", nil
	case '*', '+', '?', '{':
		return "", fmt.Errorf("%c has nothing to repeat", c)
	}
	s, err := one(t.rune(), fold)
	return s.String(), err
}

// set is a set of code points, as a list of ranges.
type set []uni.Range

// one is the set of r and, when case does not count, of its other cases.
func one(r rune, fold bool) (set, error) {
	s := set{{First: r, Last: r}}
	if !fold {
		return s, nil
	}
	switch {
	case r >= 0x80 && (uni.Words().Has(r)):
		return nil, fmt.Errorf("%q is not supported in a pattern that ignores case", r)
	case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z':
		s = append(s, uni.Range{First: r ^ 0x20, Last: r ^ 0x20})
		if r|0x20 == 's' {
			s = append(s, uni.Range{First: 'ſ', Last: 'ſ'})
		}
		if r|0x20 == 'k' {
			s = append(s, uni.Range{First: '\u212a', Last: '\u212a'})
		}
	}
	return s, nil
}

// String is the set as a class of regexp2.
func (s set) String() string {
	if len(s) == 0 {
		return "(?!)"
	}
	var b strings.Builder
	b.WriteByte('[')
	for _, r := range s {
		writeClassRune(&b, r.First)
		if r.Last > r.First {
			b.WriteByte('-')
			writeClassRune(&b, r.Last)
		}
	}
	b.WriteByte(']')
	return b.String()
}

func writeClassRune(b *strings.Builder, r rune) {
	if r < 0x80 || r >= 0xd800 && r < 0xe000 {
		fmt.Fprintf(b, `\u%04x`, r)
		return
	}
	b.WriteRune(r)
}

// invert is the complement; surrogates, which no text holds, do not matter.
func (s set) invert() set {
	has := members(s)
	var out set
	for r := rune(0); r < 0x110000; r++ {
		if r == 0xd800 {
			r = 0xe000
		}
		if has.Has(r) {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Last == r-1 {
			out[n-1].Last = r
		} else {
			out = append(out, uni.Range{First: r, Last: r})
		}
	}
	return out
}

func members(s set) *uni.Set {
	var out uni.Set
	for _, r := range s {
		for c := r.First; c <= r.Last; c++ {
			out[c>>6] |= 1 << (c & 63)
		}
	}
	return &out
}

// namedSets keeps the complements, which take a while.
var namedSets sync.Map // string: set

// named is a set of package uni or its complement.
func named(name string, negated bool) (set, error) {
	key := name
	if negated {
		key = "^" + name
	}
	if s, ok := namedSets.Load(key); ok {
		return s.(set), nil
	}
	list, ok := uni.Ranges(name)
	if !ok {
		return nil, fmt.Errorf("the class %q is unknown", name)
	}
	s := set(list)
	if negated {
		s = s.invert()
	}
	namedSets.Store(key, s)
	return s, nil
}

var shorthand = map[rune]string{'s': "space", 'd': "digit", 'w': "word"}

// controls are the letters that stand for a control character.
var controls = map[rune]rune{'n': '\n', 'r': '\r', 't': '\t', 'f': '\f', 'v': '\v', 'a': '\a', 'e': 0x1b}

// escape reads \ and what follows.
func (t *translator) escape(fold bool) (set, error) {
	t.rune()
	if t.rest == "" {
		return nil, fmt.Errorf(`the pattern ends with \`)
	}
	switch c := t.rune(); {
	case c == 's' || c == 'd' || c == 'w':
		return named(shorthand[c], false)
	case c == 'S' || c == 'D' || c == 'W':
		return named(shorthand[c|0x20], true)
	case c == 'p' || c == 'P':
		return t.property(c == 'P', fold)
	case c == 'x' || c == 'u':
		r, err := t.hex(c)
		if err != nil {
			return nil, err
		}
		return one(r, fold)
	case controls[c] != 0:
		return one(controls[c], fold)
	case c < 0x80 && !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'):
		return one(c, fold)
	default:
		return nil, fmt.Errorf(`\%c is not supported`, c)
	}
}

// scripts are the classes other than general categories.
var scripts = []string{"Han", "Hiragana", "Katakana", "Hangul"}

func (t *translator) property(negated, fold bool) (set, error) {
	name := ""
	if t.take("{") {
		end := strings.IndexByte(t.rest, '}')
		if end < 0 {
			return nil, fmt.Errorf(`a \p{ has no }`)
		}
		name, t.rest = t.rest[:end], t.rest[end+1:]
	}
	if strings.HasPrefix(name, "^") {
		name, negated = name[1:], !negated
	}
	if len(name) == 0 || len(name) > 2 && !slices.Contains(scripts, name) || fold && name[0] == 'L' && name != "L" {
		return nil, fmt.Errorf("the class %q is not supported", name)
	}
	return named(name, negated)
}

func (t *translator) hex(c rune) (rune, error) {
	n := 4
	digits := ""
	if c == 'x' {
		n = 2
		if t.take("{") {
			end := strings.IndexByte(t.rest, '}')
			if end < 0 {
				return 0, fmt.Errorf(`a \x{ has no }`)
			}
			digits, t.rest = t.rest[:end], t.rest[end+1:]
		}
	}
	if digits == "" {
		if len(t.rest) < n {
			return 0, fmt.Errorf(`the escape \%c is incomplete`, c)
		}
		digits, t.rest = t.rest[:n], t.rest[n:]
	}
	v, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || v > utf8.MaxRune || v >= 0xd800 && v < 0xe000 || c == 'x' && n == 2 && len(digits) == 2 && v >= 0x80 {
		return 0, fmt.Errorf(`\%c%s is not a character`, c, digits)
	}
	return rune(v), nil
}

// class reads [...].
func (t *translator) class(fold bool) (set, error) {
	t.rune()
	negated := t.take("^")
	var s set
	for first := true; ; first = false {
		// An end, what Oniguruma has and this has not, a class in the class.
		switch {
		case t.rest == "":
			return nil, fmt.Errorf("a [ has no ]")
		case t.peek() == ']' && !first:
			t.rune()
			if negated {
				s = s.invert()
			}
			return s, nil
		case strings.HasPrefix(t.rest, "[:") || strings.HasPrefix(t.rest, "&&") || t.peek() == ']':
			return nil, fmt.Errorf("%.4q inside [] is not supported", t.rest)
		case t.peek() == '[':
			inner, err := t.nested(fold)
			if err != nil {
				return nil, err
			}
			s = append(s, inner...)
			continue
		}
		item, err := t.classItem(fold)
		if err != nil {
			return nil, err
		}
		// A character, or a range from it.
		single := len(item) >= 1 && item[0].First == item[0].Last
		if t.peek() == '-' && len(t.rest) > 1 && t.rest[1] != ']' {
			if !single || len(item) > 1 && !fold {
				return nil, fmt.Errorf("a range begins with a class")
			}
			t.rune()
			last, err := t.classItem(fold)
			if err != nil {
				return nil, err
			}
			if item, err = between(item[0].First, last, fold); err != nil {
				return nil, err
			}
		}
		s = append(s, item...)
	}
}

// nested is a class within a class, which adds to it.
func (t *translator) nested(fold bool) (set, error) {
	if t.depth++; t.depth > 100 {
		return nil, fmt.Errorf("brackets are nested too deeply")
	}
	defer func() { t.depth-- }()
	return t.class(fold)
}

// between is a range; without regard to case it may hold ASCII only.
func between(first rune, last set, fold bool) (set, error) {
	if len(last) == 0 || last[0].First != last[0].Last || last[0].First < first {
		return nil, fmt.Errorf("a range ends before it begins")
	}
	end := last[0].First
	if !fold {
		return set{{First: first, Last: end}}, nil
	}
	var out set
	for r := first; r <= end; r++ {
		s, err := one(r, true)
		if err != nil {
			return nil, err
		}
		out = append(out, s...)
	}
	return out, nil
}

func (t *translator) classItem(fold bool) (set, error) {
	if t.peek() == '\\' {
		return t.escape(fold)
	}
	return one(t.rune(), fold)
}

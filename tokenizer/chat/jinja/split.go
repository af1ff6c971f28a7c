package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

func isPrintable(c rune) bool { return unicode.IsPrint(c) }

// split is str.split and, from the right, str.rsplit.
func (r *run) split(s string, sep, most Value, right bool) Value {
	limit := indexOr(most, "split()", -1)
	if limit < 0 {
		limit = len(s) + 1
	}
	r.scan(len(s))
	// By white space, or by a text from the left or the right.
	var pieces []string
	if _, none := given(sep).(None); none {
		pieces = splitBlanks(s, limit, right)
	} else {
		by := textArg(sep)
		if by == "" {
			valueError("empty separator")
		}
		if right {
			pieces = splitRight(s, by, limit)
		} else {
			r.allocTimes(min(strings.Count(s, by), limit), 32)
			pieces = strings.SplitN(s, by, limit+1)
		}
	}
	r.allocTimes(len(pieces), 64)
	items := make([]Value, len(pieces))
	for i, p := range pieces {
		items[i] = p
	}
	return r.list(items)
}

func splitRight(s, by string, limit int) []string {
	var pieces []string
	for len(pieces) < limit {
		at := strings.LastIndex(s, by)
		if at < 0 {
			break
		}
		pieces = append(pieces, s[at+len(by):])
		s = s[:at]
	}
	pieces = append(pieces, s)
	slices.Reverse(pieces)
	return pieces
}

// splitBlanks cuts at blanks; what remains beyond the limit keeps those inside of it.
func splitBlanks(s string, limit int, right bool) (pieces []string) {
	if right {
		for s = strings.TrimRightFunc(s, isSpace); s != ""; s = strings.TrimRightFunc(s, isSpace) {
			at := strings.LastIndexFunc(s, isSpace)
			if len(pieces) == limit || at < 0 {
				pieces = append(pieces, s)
				break
			}
			_, n := utf8.DecodeRuneInString(s[at:])
			pieces = append(pieces, s[at+n:])
			s = s[:at]
		}
		slices.Reverse(pieces)
		return pieces
	}
	for s = strings.TrimLeftFunc(s, isSpace); s != ""; s = strings.TrimLeftFunc(s, isSpace) {
		at := strings.IndexFunc(s, isSpace)
		if len(pieces) == limit || at < 0 {
			return append(pieces, s)
		}
		pieces = append(pieces, s[:at])
		s = s[at:]
	}
	return pieces
}

// lines are those of s, with their ends or without.
func (r *run) lines(s string, keep bool) (list []string) {
	r.scan(len(s))
	for s != "" {
		at := strings.IndexFunc(s, isLineEnd)
		if at < 0 {
			list = append(list, s)
			break
		}
		_, n := utf8.DecodeRuneInString(s[at:])
		if strings.HasPrefix(s[at:], "\r\n") {
			n = 2
		}
		end := at
		if keep {
			end += n
		}
		list = append(list, s[:end])
		s = s[at+n:]
		r.alloc(32)
	}
	return list
}

func (r *run) splitLines(s string, keep bool) Value {
	items := []Value{}
	for _, l := range r.lines(s, keep) {
		items = append(items, l)
	}
	return r.list(items)
}

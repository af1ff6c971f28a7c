package chat

import (
	"encoding/json"
	"strings"
)

// deepestLiteral bounds values inside each other.
const deepestLiteral = 64

// literalReader reads arguments that are written as literals, and writes them as JSON.
type literalReader struct {
	of   *literals
	rest string
	out  strings.Builder
}

// arguments reads a list of key and value in brackets; rest is what follows it.
func (l *literals) arguments(text string) (object, rest string, ok bool) {
	r := &literalReader{of: l, rest: text}
	if !r.members(l.open, l.close, 0) || !json.Valid([]byte(r.out.String())) {
		return "", "", false
	}
	return r.out.String(), r.rest, true
}

// take drops a text, with blanks before it, where it comes next.
func (r *literalReader) take(next string) bool {
	rest, found := strings.CutPrefix(strings.TrimLeft(r.rest, " \n\t"), next)
	if found {
		r.rest = rest
	}
	return found
}

// members reads key and value, separated by commas, between brackets, as an object.
func (r *literalReader) members(open, close string, depth int) bool {
	if !r.take(open) || depth > deepestLiteral {
		return false
	}
	r.out.WriteByte('{')
	for n := 0; !r.take(close); n++ {
		if n > 0 {
			if !r.take(",") {
				return false
			}
			if r.take(close) {
				break // behind a comma, as Python allows
			}
			r.out.WriteString(", ")
		}
		if !r.key() || !r.value(depth+1) {
			return false
		}
	}
	r.out.WriteByte('}')
	return true
}

// key reads a name, quoted or not, and what assigns its value: within objects always a colon.
func (r *literalReader) key() bool {
	if !r.text() {
		r.rest = strings.TrimLeft(r.rest, " \n\t")
		end := strings.IndexAny(r.rest, r.of.assign+": \n,{}[]()")
		if end <= 0 || !r.write(r.rest[:end]) {
			return false
		}
		r.rest = r.rest[end:]
	}
	r.out.WriteString(": ")
	return r.take(r.of.assign) || r.take(":")
}

// value reads a string, an object, a list, a number or a name of Python's or JSON's.
func (r *literalReader) value(depth int) bool {
	if r.text() {
		return true
	}
	rest := strings.TrimLeft(r.rest, " \n\t")
	switch {
	case depth > deepestLiteral || rest == "":
		return false
	case rest[0] == '{':
		return r.members("{", "}", depth)
	case rest[0] == '[':
		return r.list("[", "]", depth)
	case rest[0] == '(': // a tuple of Python
		return r.list("(", ")", depth)
	}
	end := strings.IndexAny(rest, ",]})")
	if end < 0 {
		return false
	}
	word := strings.TrimRight(rest[:end], " \n\t")
	if other, is := map[string]string{"True": "true", "False": "false", "None": "null"}[word]; is {
		word = other
	}
	r.rest = rest[end:]
	r.out.WriteString(word)
	return json.Valid([]byte(word))
}

// list reads values, separated by commas, between brackets, as a list.
func (r *literalReader) list(open, close string, depth int) bool {
	r.take(open)
	r.out.WriteByte('[')
	for n := 0; !r.take(close); n++ {
		if n > 0 {
			if !r.take(",") {
				return false
			}
			if r.take(close) {
				break // behind a comma, as Python allows
			}
			r.out.WriteString(", ")
		}
		if !r.value(depth + 1) {
			return false
		}
	}
	r.out.WriteByte(']')
	return true
}

// text reads a string in the template's quotes, in which nothing is escaped, or one of JSON's or Python's.
func (r *literalReader) text() bool {
	rest := strings.TrimLeft(r.rest, " \n\t")
	var s string
	switch quote := r.of.quote; {
	case len(quote) > 1 && strings.HasPrefix(rest, quote):
		inner, after, found := strings.Cut(rest[len(quote):], quote)
		if !found {
			return false
		}
		r.rest = after
		return r.write(inner)
	case strings.HasPrefix(rest, `"`):
		if d := json.NewDecoder(strings.NewReader(rest)); d.Decode(&s) == nil {
			r.rest = rest[d.InputOffset():]
			return r.write(s)
		}
	case !strings.HasPrefix(rest, "'"):
		return false
	}
	s, after, found := pythonText(rest[1:], rest[0], r.of.plain && rest[0] == '\'')
	if found {
		r.rest = after
	}
	return found && r.write(s)
}

func (r *literalReader) write(s string) bool {
	quoted, err := json.Marshal(s)
	r.out.Write(quoted)
	return err == nil
}

package jinja

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"unicode"
)

func init() {
	if filters == nil {
		filters = map[string]filter{}
	}
	add := func(params string, do func(r *run, v Value, args []Value) Value, names ...string) {
		for _, name := range names {
			filters[name] = filter{params: newSignature(params), do: do}
		}
	}
	add("/", func(r *run, v Value, _ []Value) Value { return r.escaped(v) }, "e", "escape")
	add("", func(r *run, v Value, _ []Value) Value { return Markup(r.escape(r.str(v))) }, "forceescape")
	add("", func(r *run, v Value, _ []Value) Value { return Markup(r.str(v)) }, "safe")
	add("", stripTags, "striptags")
	add("autospace?", xmlAttr, "xmlattr")
	add("", urlEncode, "urlencode")
}

var htmlEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")

// escape is the text of markupsafe.escape.
func (r *run) escape(s string) string {
	r.allocTimes(len(s), 5)
	return htmlEscapes.Replace(s)
}

// escaped is markupsafe.escape.
func (r *run) escaped(v Value) Markup {
	if m, is := v.(Markup); is {
		return m
	}
	return Markup(r.escape(r.str(v)))
}

// knownEntity are references that both Python and Go read alike.
var knownEntity = regexp.MustCompile(`^&(amp|lt|gt|quot|nbsp|copy|reg|raquo|laquo|hellip|mdash|ndash|eacute|#34|#39|#x27);`)

func stripTags(r *run, v Value, _ []Value) Value {
	s := r.str(v)
	drop := func(begin, end string) {
		var b strings.Builder
		for {
			from := strings.Index(s, begin)
			if from < 0 {
				break
			}
			to := strings.Index(s[from:], end)
			if to < 0 {
				break
			}
			r.step(1)
			// What is left may join to a new mark, as Python reads the text from its beginning.
			b.WriteString(s[:from])
			s = s[from+to+len(end):]
			if tail := b.String(); strings.HasSuffix(tail, "<") || strings.HasSuffix(tail, "-") || strings.HasSuffix(tail, "!") {
				unsupported("striptags of a tag inside another tag")
			}
		}
		s = b.String() + s
	}
	r.allocTimes(len(s), 4)
	r.scan(8 * len(s))
	drop("<!--", "-->")
	drop("<", ">")
	s = strings.Join(splitBlanks(s, len(s)+1, false), " ")
	for i := range len(s) {
		if s[i] == '&' && i+1 < len(s) && (s[i+1] == '#' || unicode.IsLetter(rune(s[i+1]))) && !knownEntity.MatchString(s[i:min(len(s), i+12)]) {
			unsupported("striptags of a text with the reference %s", reprString(s[i:min(len(s), i+10)]))
		}
	}
	return html.UnescapeString(s)
}

func xmlAttr(r *run, v Value, args []Value) Value {
	d, is := v.(*Dict)
	if !is {
		if u, undefined := v.(*Undefined); undefined {
			u.use()
		}
		fail("AttributeError", "'%s' object has no attribute 'items'", typeName(v))
	}
	var parts []string
	// None and undefined values are left out.
	for i, k := range d.keys {
		switch d.values[i].(type) {
		case None, *Undefined:
			continue
		}
		name, is := textOf(k)
		if !is {
			typeError("expected string or bytes-like object, got '%s'", typeName(k))
		}
		if strings.ContainsAny(name, " \t\n\r\f\v/>=") {
			valueError("Invalid character in attribute name: %s", reprString(name))
		}
		parts = append(parts, fmt.Sprintf(`%s="%s"`, r.escaped(k), r.escaped(d.values[i])))
	}
	text := strings.Join(parts, " ")
	if text != "" && (args[0] == nil || r.truth(args[0])) {
		text = " " + text
	}
	return r.text(text)
}

// quote is urllib's quote of a value's text; inQuery: of a part of a query.
func (r *run) quote(v Value, inQuery bool) string {
	s := r.str(v)
	r.allocTimes(len(s), 3)
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("_.-~", c) >= 0, c == '/' && !inQuery:
			b.WriteByte(c)
		case c == ' ' && inQuery:
			b.WriteByte('+')
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func urlEncode(r *run, v Value, _ []Value) Value {
	if _, text := textOf(v); text || !iterable(v) {
		return r.quote(v, false)
	}
	var pairs Value = v
	if d, is := v.(*Dict); is {
		pairs = &dictView{d, "items"}
	}
	var parts []string
	for _, pair := range r.all(pairs) {
		kv := r.unpack(pair, 2)
		parts = append(parts, r.quote(kv[0], true)+"="+r.quote(kv[1], true))
	}
	return r.text(strings.Join(parts, "&"))
}

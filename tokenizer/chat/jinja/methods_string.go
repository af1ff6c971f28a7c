package jinja

import (
	"strings"
	"unicode/utf8"
)

// strMethod is a method of str: its parameters, and what it does.
type strMethod struct {
	params *signature
	do     func(r *run, s string, args []Value) Value
}

// strMethods are the methods of str that templates get.
var strMethods map[string]strMethod

// strRefused are those that Python has and this package has not.
var strRefused = map[string]string{
	"encode": "bytes", "translate": "tables of characters", "maketrans": "tables of characters",
}

func init() {
	strMethods = map[string]strMethod{}
	add := func(name, params string, do func(r *run, s string, args []Value) Value) {
		strMethods[name] = strMethod{newSignature(params), do}
	}
	// Letters and classes of characters.
	cases := map[string]func(string) string{"upper": upper, "lower": lower, "title": title, "capitalize": capitalize, "swapcase": swapcase, "casefold": casefold}
	for name, f := range cases {
		add(name, "", func(r *run, s string, _ []Value) Value { return r.mapped(s, f) })
	}
	for name, test := range characterTests {
		add(name, "", func(r *run, s string, _ []Value) Value { r.scan(4 * len(s)); return test(s) })
	}
	// Ends, parts, replacements.
	for name, side := range map[string]int{"strip": 3, "lstrip": 1, "rstrip": 2} {
		add(name, "/chars?", func(r *run, s string, args []Value) Value { return r.strip(s, args[0], side) })
	}
	add("split", "sep? maxsplit?", func(r *run, s string, args []Value) Value { return r.split(s, args[0], args[1], false) })
	add("rsplit", "sep? maxsplit?", func(r *run, s string, args []Value) Value { return r.split(s, args[0], args[1], true) })
	add("splitlines", "keepends?", func(r *run, s string, args []Value) Value {
		return r.splitLines(s, args[0] != nil && r.truth(args[0]))
	})
	add("partition", "/sep", func(r *run, s string, args []Value) Value { return r.partition(s, args[0], strings.Index) })
	add("rpartition", "/sep", func(r *run, s string, args []Value) Value { return r.partition(s, args[0], strings.LastIndex) })
	add("startswith", "/prefix start? end?", func(r *run, s string, args []Value) Value { return r.affix(s, args, strings.HasPrefix) })
	add("endswith", "/suffix start? end?", func(r *run, s string, args []Value) Value { return r.affix(s, args, strings.HasSuffix) })
	add("removeprefix", "/prefix", func(r *run, s string, args []Value) Value { return strings.TrimPrefix(s, textArg(args[0])) })
	add("removesuffix", "/suffix", func(r *run, s string, args []Value) Value { return strings.TrimSuffix(s, textArg(args[0])) })
	add("replace", "/old new count?", func(r *run, s string, args []Value) Value {
		return r.replace(s, textArg(args[0]), textArg(args[1]), indexOr(args[2], "replace()", -1))
	})
	add("join", "/iterable", func(r *run, s string, args []Value) Value { return r.join(s, args[0]) })
	findMethods(add)
	padMethods(add)
}

// findMethods are the methods that find a text.
func findMethods(add func(name, params string, do func(r *run, s string, args []Value) Value)) {
	for name, find := range map[string]func(string, string) int{"find": strings.Index, "rfind": strings.LastIndex, "index": strings.Index, "rindex": strings.LastIndex} {
		add(name, "/sub start? end?", func(r *run, s string, args []Value) Value {
			at := r.findText(s, args, find)
			if at < 0 && strings.HasSuffix(name, "index") {
				valueError("substring not found")
			}
			return at
		})
	}
	add("count", "/sub start? end?", func(r *run, s string, args []Value) Value { return r.countText(s, args) })
}

// padMethods are the methods that fill a text up to a width.
func padMethods(add func(name, params string, do func(r *run, s string, args []Value) Value)) {
	for name, side := range map[string]int{"center": 0, "ljust": 1, "rjust": 2} {
		add(name, "/width fillchar?", func(r *run, s string, args []Value) Value { return r.justify(s, args[0], args[1], side) })
	}
	add("zfill", "/width", func(r *run, s string, args []Value) Value { return r.zfill(s, index(args[0], "zfill()")) })
	add("expandtabs", "tabsize?", func(r *run, s string, args []Value) Value {
		return r.expandTabs(s, indexOr(args[0], "expandtabs()", 8))
	})
}

// stringMethod is the method name of a str or Markup.
func stringMethod(x Value, name string) Value {
	s, _ := textOf(x)
	if why := strRefused[name]; why != "" {
		unsupported("the method %s of a str (%s)", name, why)
	}
	_, safe := x.(Markup)
	if safe && (name == "unescape" || name == "striptags" || name == "escape") {
		unsupported("the method %s of a Markup", name)
	}
	if name == "format" || name == "format_map" {
		if safe {
			unsupported("the method %s of a Markup", name)
		}
		return &callable{name, func(r *run, g arguments) Value { return r.formatCall(s, name, g) }}
	}
	m, known := strMethods[name]
	if !known {
		return nil
	}
	return &callable{name, func(r *run, g arguments) Value {
		args := m.params.bind(name+"()", g)
		if safe {
			return r.markupMethod(s, name, m, args)
		}
		return m.do(r, s, args)
	}}
}

// markupMethod is a method of Markup: texts it is given are escaped where the result shows them,
// and the result is Markup.
func (r *run) markupMethod(s, name string, m strMethod, args []Value) Value {
	switch name {
	case "replace", "ljust", "rjust", "center":
		if args[1] != nil {
			args[1] = r.escaped(args[1])
		}
	case "join":
		items := []Value{}
		for _, item := range r.all(args[0]) {
			items = append(items, r.escaped(item))
		}
		args[0] = r.list(items)
	}
	return asMarkup(m.do(r, s, args))
}

func asMarkup(v Value) Value {
	wrap := func(items []Value) []Value {
		out := make([]Value, len(items))
		for i, item := range items {
			out[i] = asMarkup(item)
		}
		return out
	}
	switch v := v.(type) {
	case string:
		return Markup(v)
	case *List:
		return &List{items: wrap(v.items)}
	case *Tuple:
		return &Tuple{items: wrap(v.items)}
	}
	return v
}

func textArg(v Value) string {
	s, is := textOf(v)
	if !is {
		typeError("argument must be str, not %s", typeName(v))
	}
	return s
}

func (r *run) mapped(s string, f func(string) string) string {
	r.allocTimes(len(s), 4)
	if !isASCII(s) {
		r.step(4 * len(s))
	}
	return f(s)
}

// characterTests are the methods that begin with is.
var characterTests = map[string]func(string) bool{
	"isalpha": every(isAlpha), "isdigit": every(isDigit), "isdecimal": every(isDecimal), "isnumeric": every(isNumeric),
	"isalnum": every(isAlnum), "isspace": every(isSpace), "isascii": isASCII, "isidentifier": isIdentifier,
	"isprintable": func(s string) bool { return s == "" || every(isPrintable)(s) },
	"islower":     func(s string) bool { return casedAs(s, isLower) },
	"isupper":     func(s string) bool { return casedAs(s, isUpper) },
	"istitle":     isTitled,
}

func every(is func(rune) bool) func(string) bool {
	return func(s string) bool {
		for _, c := range s {
			if !is(c) {
				return false
			}
		}
		return s != ""
	}
}

// casedAs reports whether s has cased characters and all of them are as wanted.
func casedAs(s string, is func(rune) bool) bool {
	found := false
	for _, c := range s {
		if is(c) {
			found = true
		} else if isCased(c) {
			return false
		}
	}
	return found
}

func isTitled(s string) bool {
	found, before := false, false
	for _, c := range s {
		switch {
		case isUpper(c) || isTitle(c):
			if before {
				return false
			}
			found, before = true, true
		case isLower(c):
			if !before {
				return false
			}
		default:
			before = false
		}
	}
	return found
}

func (r *run) strip(s string, chars Value, side int) string {
	cutset := isSpace
	if _, none := chars.(None); chars != nil && !none {
		set := textArg(chars)
		r.step(len(set)/8 + 1)
		r.step(len(s) / 32 * (1 + len(set)/8))
		cutset = func(c rune) bool { return strings.ContainsRune(set, c) }
	}
	r.alloc(16)
	r.scan(len(s))
	if side&1 != 0 {
		s = strings.TrimLeftFunc(s, cutset)
	}
	if side&2 != 0 {
		s = strings.TrimRightFunc(s, cutset)
	}
	return s
}

func (r *run) partition(s string, sep Value, find func(string, string) int) Value {
	by := textArg(sep)
	if by == "" {
		valueError("empty separator")
	}
	r.scan(len(s))
	at := find(s, by)
	switch {
	case at >= 0:
		return r.tuple(s[:at], by, s[at+len(by):])
	case find("ab", "b") == find("abb", "b"):
		return r.tuple(s, "", "")
	}
	return r.tuple("", "", s)
}

// section is s[start:end] as methods that find text take it; shift is the number of its
// first character, and good is false where start lies behind the end.
func (r *run) section(s string, start, end Value) (part string, shift int, good bool) {
	r.scan(len(s))
	if start == nil && end == nil {
		return s, 0, true
	}
	n := utf8.RuneCountInString(s)
	from, _, _, _ := sliceBounds(given(start), None{}, None{}, n)
	to := n
	if _, none := given(end).(None); !none {
		if to = index(end, "slice indices"); to < 0 {
			to = max(0, to+n)
		}
		to = min(to, n)
	}
	if _, none := given(start).(None); !none && index(start, "slice indices") > n {
		return "", 0, false
	}
	if from > to {
		return "", 0, false
	}
	return cut(s, from, to), from, true
}

func (r *run) affix(s string, args []Value, has func(string, string) bool) Value {
	part, _, good := r.section(s, args[1], args[2])
	wanted := []Value{args[0]}
	if t, is := args[0].(*Tuple); is {
		wanted = t.items
	}
	for _, w := range wanted {
		text, is := textOf(w)
		if !is {
			typeError("startswith or endswith first arg must be str or a tuple of str, not %s", typeName(w))
		}
		r.step(1)
		if good && has(part, text) {
			return true
		}
	}
	return false
}

func (r *run) findText(s string, args []Value, find func(string, string) int) int {
	wanted := textArg(args[0])
	part, shift, good := r.section(s, args[1], args[2])
	if !good {
		return -1
	}
	at := find(part, wanted)
	if at < 0 {
		return -1
	}
	return shift + utf8.RuneCountInString(part[:at])
}

func (r *run) countText(s string, args []Value) Value {
	wanted := textArg(args[0])
	part, _, good := r.section(s, args[1], args[2])
	if !good {
		return 0
	}
	return strings.Count(part, wanted)
}

func (r *run) replace(s, old, new string, count int) string {
	if count < 0 {
		count = -1
	}
	r.scan(len(s))
	n := strings.Count(s, old)
	if count >= 0 {
		n = min(n, count)
	}
	r.alloc(len(s) + 16)
	r.allocTimes(n, len(new))
	return strings.Replace(s, old, new, count)
}

func (r *run) join(sep string, items Value) string {
	var b buffer
	next := r.iterate(items)
	i := 0
	for item := next(); item != nil; item = next() {
		s, is := textOf(item)
		if !is {
			typeError("sequence item %d: expected str instance, %s found", i, typeName(item))
		}
		if i > 0 {
			r.write(&b, sep)
		}
		r.write(&b, s)
		i++
	}
	return r.take(&b)
}

// justify pads s: side 0 on both sides, 1 behind it, 2 before it.
func (r *run) justify(s string, width, fill Value, side int) string {
	pad := " "
	if fill != nil {
		if pad = textArg(fill); utf8.RuneCountInString(pad) != 1 {
			typeError("The fill character must be exactly one character long")
		}
	}
	n, _ := r.length(s)
	w := index(width, "width")
	missing := max(0, w-n)
	left := 0
	switch side {
	case 0:
		left = missing/2 + (missing & w & 1)
	case 2:
		left = missing
	}
	r.alloc(len(s) + 16)
	return r.repeat(pad, left) + s + r.repeat(pad, missing-left)
}

func (r *run) zfill(s string, width int) string {
	n, _ := r.length(s)
	r.alloc(len(s))
	zeros := r.repeat("0", max(0, width-n))
	if s != "" && (s[0] == '+' || s[0] == '-') {
		return s[:1] + zeros + s[1:]
	}
	return zeros + s
}

func (r *run) expandTabs(s string, size int) string {
	var b buffer
	column := 0
	for _, c := range s {
		r.step(1)
		switch c {
		case '\t':
			if size > 0 {
				n := size - column%size
				r.write(&b, r.repeat(" ", n))
				column += n
			}
			continue
		case '\n', '\r':
			column = -1
		}
		column++
		r.write(&b, string(c))
	}
	return r.take(&b)
}

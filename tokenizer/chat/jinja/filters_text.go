package jinja

import (
	"math"
	"strings"
	"unicode/utf8"
)

func init() {
	if filters == nil {
		filters = map[string]filter{}
	}
	// A signature lists parameters as Jinja's function has them; ? marks those with a default.
	add := func(params string, do func(r *run, v Value, args []Value) Value, names ...string) {
		for _, name := range names {
			filters[name] = filter{params: newSignature(params), do: do}
		}
	}
	method := func(name string) func(r *run, v Value, args []Value) Value {
		return func(r *run, v Value, args []Value) Value { return r.softMethod(v, name, args...) }
	}
	// Filters that are methods of str, after soft_str: Markup stays Markup.
	add("", method("upper"), "upper")
	add("", method("lower"), "lower")
	add("", method("capitalize"), "capitalize")
	add("chars?", func(r *run, v Value, args []Value) Value { return r.softMethod(v, "strip", given(args[0])) }, "trim")
	add("width?", func(r *run, v Value, args []Value) Value {
		if args[0] == nil {
			args[0] = 80
		}
		return r.softMethod(v, "center", args[0])
	}, "center")
	add("", func(r *run, v Value, _ []Value) Value { return r.soft(v) }, "string")
	// Filters with rules of their own.
	add("", titleFilter, "title")
	add("", wordCount, "wordcount")
	add("old new count?", replaceFilter, "replace")
	add("width? first? blank?", indentFilter, "indent")
	add("length? killwords? end? leeway?", truncateFilter, "truncate")
	add("ensure_ascii? indent? separators? sort_keys?", toJSON, "tojson")
	add("binary?", fileSize, "filesizeformat")
	add("", func(r *run, v Value, _ []Value) Value { return r.pprint(v) }, "pprint")
	filters["format"] = filter{raw: formatFilter}
}

// soft is markupsafe.soft_str: a text as it is, anything else as str.
func (r *run) soft(v Value) Value {
	if _, is := textOf(v); is {
		return v
	}
	return r.str(v)
}

func (r *run) softMethod(v Value, name string, args ...Value) Value {
	return r.call(stringMethod(r.soft(v), name), arguments{pos: args})
}

func titleFilter(r *run, v Value, _ []Value) Value {
	s, _ := textOf(r.soft(v))
	r.allocTimes(len(s), 4)
	r.step(4 * len(s))
	var b strings.Builder
	separates := func(c rune) bool { return c == '-' || isSpace(c) || strings.ContainsRune("({[<", c) }
	for s != "" {
		at := strings.IndexFunc(s, separates)
		if at < 0 {
			at = len(s)
		}
		if word := s[:at]; word != "" {
			_, n := utf8.DecodeRuneInString(word)
			b.WriteString(upper(word[:n]) + lower(word[n:]))
		}
		s = s[at:]
		rest := strings.TrimLeftFunc(s, separates)
		b.WriteString(s[:len(s)-len(rest)])
		s = rest
	}
	return b.String()
}

func wordCount(r *run, v Value, _ []Value) Value {
	s, _ := textOf(r.soft(v))
	r.scan(4 * len(s))
	n, inside := 0, false
	for _, c := range s {
		if isWord(c) && !inside {
			n++
		}
		inside = isWord(c)
	}
	return n
}

func replaceFilter(r *run, v Value, args []Value) Value {
	count := -1
	if _, none := given(args[2]).(None); !none {
		count = index(args[2], "replace()")
	}
	return r.replace(r.str(v), r.str(args[0]), r.str(args[1]), count)
}

func indentFilter(r *run, v Value, args []Value) Value {
	indention, is := textOf(given(args[0]))
	if !is {
		indention = r.repeat(" ", indexOr(args[0], "width", 4))
	}
	s, is := textOf(v)
	if !is {
		unsupportedOperands("+", v, "")
	}
	_, safe := v.(Markup)
	if _, already := given(args[0]).(Markup); safe && !already && indention != r.escape(indention) {
		unsupported("indenting a Markup by a text that would be escaped")
	}
	// The first line by `first`, empty ones by `blank`.
	lines := r.lines(s+"\n", false)
	blank := args[2] != nil && r.truth(args[2])
	var b buffer
	if args[1] != nil && r.truth(args[1]) {
		r.write(&b, indention)
	}
	for i, line := range lines {
		if i > 0 {
			r.write(&b, "\n")
			if blank || line != "" {
				r.write(&b, indention)
			}
		}
		r.write(&b, line)
	}
	return like(v, r.take(&b))
}

func truncateFilter(r *run, v Value, args []Value) Value {
	length := indexOr(args[0], "length", 255)
	var end Value = "..."
	if args[2] != nil {
		end = args[2]
	}
	leeway := 5
	if _, none := given(args[3]).(None); !none {
		leeway = index(args[3], "leeway")
	}
	n, has := r.length(v)
	e, hasEnd := r.length(end)
	if !hasEnd {
		typeError("object of type '%s' has no len()", typeName(end))
	}
	if length < e || leeway < 0 {
		fail("AssertionError", "expected length >= %d, got %d", e, length)
	}
	if !has {
		typeError("object of type '%s' has no len()", typeName(v))
	}
	// Short enough with the leeway: unchanged.
	if n <= length+leeway {
		return v
	}
	// Cut, and without killwords back to the last blank.
	start := r.slice(v, None{}, length-e, None{})
	if args[1] != nil && r.truth(args[1]) {
		return add(r, start, end)
	}
	s, is := textOf(start)
	if !is {
		typeError("'%s' object has no attribute 'rsplit'", typeName(v))
	}
	if at := strings.LastIndexByte(s, ' '); at >= 0 {
		s = s[:at]
	}
	return add(r, like(start, s), end)
}

func formatFilter(r *run, v Value, g arguments) Value {
	if len(g.pos) > 0 && len(g.named) > 0 {
		fail("FilterArgumentError", "can't handle positional and keyword arguments at the same time")
	}
	if len(g.named) > 0 {
		return mod(r, r.soft(v), r.kwargsDict(g.named))
	}
	return mod(r, r.soft(v), r.tuple(g.pos...))
}

func fileSize(r *run, v Value, args []Value) Value {
	size := r.toFloat(v)
	base, suffix := 1000.0, "B"
	prefixes := []string{"k", "M", "G", "T", "P", "E", "Z", "Y"}
	if args[0] != nil && r.truth(args[0]) {
		base, suffix = 1024, "iB"
		prefixes[0] = "K"
	}
	switch {
	case size == 1:
		return "1 Byte"
	case size < base:
		return r.str(truncated(size)) + " Bytes"
	}
	for i, p := range prefixes {
		unit := math.Pow(base, float64(i+2)) // exact: below 2^106 with few digits
		if size < unit || i == len(prefixes)-1 {
			if base == 1000 && i >= 6 {
				unsupported("filesizeformat of 1 ZB or more, a unit that is not an exact float")
			}
			_, digits := r.floatDigits(base*size/unit, 'f', 1, false)
			return digits + " " + p + suffix
		}
	}
	return ""
}

// toFloat is float(v).
func (r *run) toFloat(v Value) float64 {
	if s, is := textOf(v); is {
		f, good := parseFloat(s)
		if !good {
			valueError("could not convert string to float: %s", reprString(cut(s, 0, 100)))
		}
		return f
	}
	f, is := floatOf(v)
	if !is {
		if u, undefined := v.(*Undefined); undefined {
			u.use()
		}
		typeError("float() argument must be a string or a real number, not '%s'", typeName(v))
	}
	return f
}

// pprint is pprint.pformat of values that fit one line.
func (r *run) pprint(v Value) string {
	s := r.repr(r.withSortedKeys(v, 0))
	if utf8.RuneCountInString(s) > 80 {
		unsupported("pprint of a value that takes more than one line")
	}
	return s
}

func (r *run) withSortedKeys(v Value, depth int) Value {
	r.deep(depth)
	// Containers are copied, since the value itself keeps its order.
	inner := func(items []Value) []Value {
		r.alloc(16 * len(items))
		out := make([]Value, len(items))
		for i, x := range items {
			out[i] = r.withSortedKeys(x, depth+1)
		}
		return out
	}
	switch v := v.(type) {
	case *List:
		return &List{items: inner(v.items)}
	case *Tuple:
		return &Tuple{items: inner(v.items)}
	case *Dict:
		// pprint sorts keys of several types by their type's name and address, which differs from run to run.
		for _, k := range v.keys {
			if _, is := k.(string); !is {
				unsupported("pprint of a dict whose keys are not str")
			}
		}
		d := NewDict()
		for _, k := range r.sorted(v.keys, v.keys, false) {
			r.set(d, k, r.withSortedKeys(r.find(v, k), depth+1))
		}
		return d
	}
	return v
}

package jinja

import "strings"

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
	add("/", func(r *run, v Value, _ []Value) Value {
		n, has := r.length(v)
		if !has {
			typeError("object of type '%s' has no len()", typeName(v))
		}
		return n
	}, "length", "count")
	add("", func(r *run, v Value, _ []Value) Value { return r.list(r.all(v)) }, "list")
	add("", firstFilter, "first")
	add("", lastFilter, "last")
	add("", itemsFilter, "items")
	add("", reverseFilter, "reverse")
	add("default_value? boolean?", defaultFilter, "default", "d")
	add("d? attribute?", joinFilter, "join")
	add("slices fill_with?", sliceFilter, "slice")
	add("linecount fill_with?", batchFilter, "batch")
	add("attribute? start?", sumFilter, "sum")
	add("name", attrFilter, "attr")
	// These take a filter's or test's name with its arguments, and bind them themselves.
	filters["map"] = filter{raw: mapFilter}
	for name, wants := range map[string]bool{"select": true, "reject": false} {
		filters[name] = filter{raw: func(r *run, v Value, g arguments) Value { return r.choose(v, g, wants, false) }}
		filters[name+"attr"] = filter{raw: func(r *run, v Value, g arguments) Value { return r.choose(v, g, wants, true) }}
	}
	filters["random"] = filter{raw: func(*run, Value, arguments) Value {
		unsupported("the filter random, whose result is random")
		return nil
	}}
}

func firstFilter(r *run, v Value, _ []Value) Value {
	if x := r.iterate(v)(); x != nil {
		return x
	}
	return &Undefined{message: "No first item, sequence was empty."}
}

func lastFilter(r *run, v Value, _ []Value) Value {
	it, has := r.reversed(v)
	if !has {
		typeError("'%s' object is not reversible", typeName(v))
	}
	if x := it.next(); x != nil {
		return x
	}
	return &Undefined{message: "No last item, sequence was empty."}
}

// lazily is a generator whose first item decides what it goes over.
func lazily(begin func() func() Value) *iterator {
	var next func() Value
	return newGenerator(func() Value {
		if next == nil {
			next = begin()
		}
		return next()
	})
}

func nothing() Value { return nil }

func itemsFilter(r *run, v Value, _ []Value) Value {
	return lazily(func() func() Value {
		switch v := v.(type) {
		case *Undefined:
			return nothing
		case *Dict:
			return r.iterate(&dictView{v, "items"})
		}
		typeError("Can only get item pairs from a mapping.")
		return nil
	})
}

func reverseFilter(r *run, v Value, _ []Value) Value {
	if s, is := textOf(v); is {
		return r.slice(like(v, s), None{}, None{}, -1)
	}
	if it, has := r.reversed(v); has {
		return it
	}
	if !iterable(v) {
		fail("FilterArgumentError", "argument must be iterable")
	}
	items := r.all(v)
	it, _ := r.reversed(&List{items: items})
	return r.list(r.all(it))
}

func defaultFilter(r *run, v Value, args []Value) Value {
	_, undefined := v.(*Undefined)
	if undefined || args[1] != nil && r.truth(args[1]) && !r.truth(v) {
		if args[0] == nil {
			return ""
		}
		return args[0]
	}
	return v
}

func joinFilter(r *run, v Value, args []Value) Value {
	sep := ""
	if args[0] != nil {
		sep = r.str(args[0])
	}
	get := func(v Value) Value { return v }
	if _, none := given(args[1]).(None); !none {
		get = r.attrGetter(args[1], nil)
	}
	var b buffer
	next := r.iterate(v)
	first := true
	for item := next(); item != nil; item = next() {
		if !first {
			r.write(&b, sep)
		}
		first = false
		r.write(&b, r.str(get(item)))
	}
	return r.take(&b)
}

func sliceFilter(r *run, v Value, args []Value) Value {
	return lazily(func() func() Value {
		items := r.all(v)
		n := args[0]
		if f, is := n.(float64); is {
			typeError("'float' object cannot be interpreted as an integer: %v", f)
		}
		slices := index(n, "slice()")
		// The first `extra` slices have one item more; later ones are filled up.
		zeroDivision(slices == 0)
		size, extra := len(items)/max(1, slices), len(items)%max(1, slices)
		number, offset := 0, 0
		return func() Value {
			if number >= slices {
				return nil
			}
			start := offset + number*size
			if number < extra {
				offset++
			}
			part := r.pick(items, start, offset+(number+1)*size-start, 1)
			if _, none := given(args[1]).(None); !none && number >= extra {
				part = append(part, args[1])
			}
			number++
			return r.list(part)
		}
	})
}

func batchFilter(r *run, v Value, args []Value) Value {
	return lazily(func() func() Value {
		next := r.iterate(v)
		var ahead Value
		return func() Value {
			var part []Value
			if ahead != nil {
				part, ahead = append(part, ahead), nil
			}
			for item := next(); item != nil; item = next() {
				if isNumber(args[0]) && compareNumbers(len(part), args[0]) == 0 {
					ahead = item
					return r.list(part)
				}
				r.alloc(16)
				part = append(part, item)
			}
			if len(part) == 0 {
				return nil
			}
			if _, none := given(args[1]).(None); !none && r.order("lt", len(part), args[0], 0) {
				part = append(part, r.repeatItems([]Value{args[1]}, max(0, index(args[0], "batch()")-len(part)))...)
			}
			return r.list(part)
		}
	})
}

func sumFilter(r *run, v Value, args []Value) Value {
	get := func(v Value) Value { return v }
	if _, none := given(args[0]).(None); !none {
		get = r.attrGetter(args[0], nil)
	}
	var total Value = 0
	if args[1] != nil {
		total = args[1]
	}
	if _, text := textOf(total); text {
		typeError("sum() can't sum strings [use ''.join(seq) instead]")
	}
	next := r.iterate(v)
	floats := 0
	for item := next(); item != nil; item = next() {
		x := get(item)
		if _, is := x.(float64); is {
			if floats++; floats > 2 {
				unsupported("the sum of more than two floats, which versions of Python round differently")
			}
		}
		total = add(r, total, x)
	}
	return total
}

func attrFilter(r *run, v Value, args []Value) Value {
	name, is := textOf(args[0])
	if !is {
		typeError("attribute name must be string, not '%s'", typeName(args[0]))
	}
	if x := r.safeAttribute(v, name); x != nil {
		return x
	}
	return r.missing(v, name)
}

// attrGetter looks up an attribute of items: a path with dots, items before attributes.
func (r *run) attrGetter(attribute, absent Value) func(Value) Value {
	var parts []Value
	if s, is := textOf(attribute); is {
		r.allocTimes(strings.Count(s, ".")+1, 32)
		for _, p := range strings.Split(s, ".") {
			if n, good := parseDigits(p); good {
				parts = append(parts, n)
			} else {
				parts = append(parts, p)
			}
		}
	} else if _, none := given(attribute).(None); !none {
		parts = append(parts, attribute)
	}
	return func(v Value) Value {
		for _, p := range parts {
			v = r.getitem(v, p)
			if _, undefined := v.(*Undefined); undefined && absent != nil {
				v = absent
			}
		}
		return v
	}
}

// parseDigits is int(s) of a text that isdigit.
func parseDigits(s string) (Value, bool) {
	if s == "" || !every(isDigit)(s) {
		return nil, false
	}
	if !isASCII(s) {
		unsupported("an attribute name of digits that are not ASCII")
	}
	return parseInt(s, 10)
}

func mapFilter(r *run, v Value, g arguments) Value {
	return lazily(func() func() Value {
		if !r.truth(v) {
			return nothing
		}
		f := r.applied(g)
		next := r.iterate(v)
		return func() Value {
			if item := next(); item != nil {
				return f(item)
			}
			return nil
		}
	})
}

// applied is what map applies to each item.
func (r *run) applied(g arguments) func(Value) Value {
	if attribute := g.get("attribute"); len(g.pos) == 0 && attribute != nil {
		absent := g.get("default")
		if _, none := given(absent).(None); none {
			absent = nil
		}
		for _, k := range g.named {
			if k.name != "attribute" && k.name != "default" {
				fail("FilterArgumentError", "Unexpected keyword argument '%s'", k.name)
			}
		}
		return r.attrGetter(attribute, absent)
	}
	if len(g.pos) == 0 {
		fail("FilterArgumentError", "map requires a filter argument")
	}
	f := r.named(filters, "filter", g.pos[0])
	rest := arguments{g.pos[1:], g.named}
	return func(v Value) Value { return f.call(r, v, rest) }
}

// named is a filter or test that a template names by a value.
func (r *run) named(table map[string]filter, kind string, name Value) filter {
	text, is := textOf(name)
	if !is {
		r.hash(name, 0)
	}
	f, known := table[text]
	if !known {
		return filter{raw: func(*run, Value, arguments) Value {
			fail("TemplateRuntimeError", "No %s named %s.", kind, reprString(cut(text, 0, 100)))
			return nil
		}}
	}
	return f
}

// choose is select, reject, selectattr and rejectattr.
func (r *run) choose(v Value, g arguments, wants, byAttribute bool) Value {
	return lazily(func() func() Value {
		if !r.truth(v) {
			return nothing
		}
		// What is tested: the item or an attribute of it.
		get := func(v Value) Value { return v }
		pos := g.pos
		if byAttribute {
			if len(pos) == 0 {
				fail("FilterArgumentError", "Missing parameter for attribute name")
			}
			get, pos = r.attrGetter(pos[0], nil), pos[1:]
		}
		// By which test; without one, whether it is true.
		test := filter{raw: func(r *run, v Value, _ arguments) Value { return r.truth(v) }}
		if len(pos) > 0 {
			test = r.named(tests, "test", pos[0])
			pos = pos[1:]
		}
		next := r.iterate(v)
		return func() Value {
			for item := next(); item != nil; item = next() {
				if r.truth(test.call(r, get(item), arguments{pos, g.named})) == wants {
					return item
				}
			}
			return nil
		}
	})
}

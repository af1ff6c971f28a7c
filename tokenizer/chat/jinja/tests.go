package jinja

// filter is a filter or test: its parameters behind the value, and what it does. Without
// parameters it takes its arguments as they come.
type filter struct {
	params *signature
	do     func(r *run, v Value, args []Value) Value
	raw    func(r *run, v Value, g arguments) Value
}

func (f filter) call(r *run, v Value, g arguments) Value {
	r.step(1)
	if f.raw != nil {
		return f.raw(r, v, g)
	}
	return f.do(r, v, f.params.bind("the filter or test", g))
}

// tests are what follows "is"; filters are what follows a bar.
var tests, filters map[string]filter

func init() {
	tests = map[string]filter{}
	add := func(name, params string, do func(r *run, v Value, args []Value) bool) {
		tests[name] = filter{params: newSignature(params), do: func(r *run, v Value, args []Value) Value { return do(r, v, args) }}
	}
	is := func(name string, do func(v Value) bool) {
		add(name, "", func(_ *run, v Value, _ []Value) bool { return do(v) })
	}
	typeTests(is)
	// Numbers, letters, membership.
	rest := func(r *run, v, by, want Value) bool { return r.equal(mod(r, v, by), want, 0) }
	add("odd", "", func(r *run, v Value, _ []Value) bool { return rest(r, v, 2, 1) })
	add("even", "", func(r *run, v Value, _ []Value) bool { return rest(r, v, 2, 0) })
	add("divisibleby", "num", func(r *run, v Value, args []Value) bool { return rest(r, v, args[0], 0) })
	add("lower", "", func(r *run, v Value, _ []Value) bool { return casedAs(r.str(v), isLower) })
	add("upper", "", func(r *run, v Value, _ []Value) bool { return casedAs(r.str(v), isUpper) })
	add("in", "seq", func(r *run, v Value, args []Value) bool { return r.contains(args[0], v) })
	add("sameas", "other", func(_ *run, v Value, args []Value) bool { return sameAs(v, args[0]) })
	// What a name stands for.
	known := func(table *map[string]filter) func(*run, Value, []Value) bool {
		return func(r *run, v Value, _ []Value) bool {
			r.hash(v, 0)
			name, is := textOf(v)
			_, found := (*table)[name]
			return is && found
		}
	}
	add("filter", "", known(&filters))
	add("test", "", known(&tests))
	// Comparisons, each by several names.
	for op, names := range map[string][]string{
		"eq": {"==", "eq", "equalto"}, "ne": {"!=", "ne"}, "gt": {">", "gt", "greaterthan"}, "gteq": {">=", "ge"},
		"lt": {"<", "lt", "lessthan"}, "lteq": {"<=", "le"},
	} {
		for _, name := range names {
			add(name, "/other", func(r *run, v Value, args []Value) bool { return r.compare(op, v, args[0]) })
		}
	}
}

// typeTests are the tests that check a value's class alone.
func typeTests(is func(name string, do func(v Value) bool)) {
	// Constants and numbers; True is a number and a boolean, not an integer, as in Jinja.
	is("defined", func(v Value) bool { _, undefined := v.(*Undefined); return !undefined })
	is("undefined", func(v Value) bool { _, undefined := v.(*Undefined); return undefined })
	is("none", func(v Value) bool { return v == None{} })
	is("boolean", func(v Value) bool { _, b := v.(bool); return b })
	is("true", func(v Value) bool { return v == true })
	is("false", func(v Value) bool { return v == false })
	is("integer", func(v Value) bool { _, b := v.(bool); return isInt(v) && !b })
	is("float", func(v Value) bool { _, f := v.(float64); return f })
	is("number", isNumber)
	// Text and containers.
	is("string", func(v Value) bool { _, s := textOf(v); return s })
	is("mapping", func(v Value) bool { _, d := v.(*Dict); return d })
	is("iterable", iterable)
	is("escaped", func(v Value) bool { _, m := v.(Markup); return m })
	is("sequence", func(v Value) bool {
		switch v.(type) {
		case *List, *Tuple, *Dict, *rangeValue, *Undefined, string, Markup:
			return true
		}
		return false
	})
	is("callable", func(v Value) bool {
		switch v.(type) {
		case *callable, *macroValue, *Undefined, *loopContext, *joiner:
			return true
		}
		return false
	})
}

// sameAs is "is" of Python, for what does not depend on how Python keeps its values.
func sameAs(x, y Value) bool {
	if typeName(x) != typeName(y) {
		return false
	}
	switch x := x.(type) {
	case None, bool, *List, *Dict, *namespace, *loopContext, *macroValue, *cycler, *joiner, *iterator:
		return Value(x) == y
	case int:
		if y, is := y.(int); is && (x != y || x >= -5 && x <= 256) {
			return x == y
		}
	case float64:
		if y, is := y.(float64); is && x != y {
			return false
		}
	case string:
		if y, is := y.(string); is && x != y {
			return false
		}
	case Markup:
		if y, is := y.(Markup); is && x != y {
			return false
		}
	}
	unsupported("sameas of two values of class %s, whose result depends on which objects Python shares", typeName(x))
	return false
}

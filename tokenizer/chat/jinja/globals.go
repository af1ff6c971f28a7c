package jinja

import "time"

// globalsOf are the names that every template sees.
func globalsOf(now time.Time) map[string]Value {
	out := map[string]Value{}
	for name, f := range map[string]func(*run, arguments) Value{
		"range": newRange, "dict": newDict, "namespace": newNamespace, "cycler": newCycler, "joiner": newJoiner,
		"raise_exception": raise,
		"lipsum": func(*run, arguments) Value {
			unsupported("lipsum, whose text is random")
			return nil
		},
		"strftime_now": func(r *run, g arguments) Value {
			format, is := textOf(newSignature("format").bind("strftime_now()", g)[0])
			if !is {
				typeError("strftime() argument 1 must be str")
			}
			return r.text(strftime(now, format))
		},
	} {
		out[name] = &callable{name, f}
	}
	return out
}

func raise(r *run, g arguments) Value {
	message := newSignature("message").bind("raise_exception()", g)[0]
	if text, is := textOf(message); is {
		fail(raised, "%s", text)
	}
	fail(raised, "%s", r.str(message))
	return nil
}

// mostRange is the sandbox's bound on the numbers of a range.
const mostRange = 100_000

func newRange(r *run, g arguments) Value {
	args := newSignature("/start stop? step?").bind("range()", g)
	for _, a := range args {
		if a == nil {
			continue
		}
		if !isInt(a) {
			typeError("'%s' object cannot be interpreted as an integer", typeName(a))
		}
		if n, small := smallOf(a); !small || n < -1<<40 || n > 1<<40 {
			unsupported("a range of very large numbers")
		}
	}
	start, stop, step := 0, index(args[0], "range()"), indexOr(args[2], "range()", 1)
	if args[1] != nil {
		start, stop = stop, index(args[1], "range()")
	}
	if step == 0 {
		valueError("range() arg 3 must not be zero")
	}
	// How many numbers that is; Jinja's sandbox bounds it.
	n := 0
	if step > 0 && stop > start {
		n = (stop - start + step - 1) / step
	} else if step < 0 && stop < start {
		n = (start - stop - step - 1) / -step
	}
	if n > mostRange {
		fail("OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", mostRange)
	}
	return &rangeValue{start, stop, step, n}
}

func newNamespace(r *run, g arguments) Value {
	attrs := newDict(r, g).(*Dict)
	for _, k := range attrs.keys {
		if name, is := textOf(k); is && len(name) > 0 && name[0] == '_' {
			fail("SecurityError", "chat templates cannot set an attribute of a namespace if its name begins with an underscore: %s", name)
		}
	}
	r.alloc(64)
	return &namespace{attrs}
}

func newCycler(r *run, g arguments) Value {
	if len(g.named) > 0 {
		typeError("Cycler.__init__() got an unexpected keyword argument '%s'", g.named[0].name)
	}
	if len(g.pos) == 0 {
		fail("RuntimeError", "at least one item has to be provided")
	}
	r.alloc(64)
	return &cycler{items: g.pos}
}

func newJoiner(r *run, g arguments) Value {
	sep := newSignature("sep?").bind("joiner()", g)[0]
	if sep == nil {
		sep = ", "
	}
	r.alloc(64)
	return &joiner{sep: sep}
}

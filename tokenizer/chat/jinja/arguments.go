package jinja

import "strings"

// arguments are what a call is given.
type arguments struct {
	pos   []Value
	named []namedArg
}

type namedArg struct {
	name  string
	value Value
}

func (g arguments) kwargs() []namedArg { return append([]namedArg{}, g.named...) }

// get is a named argument, nil where it is not given.
func (g arguments) get(name string) Value {
	for _, k := range g.named {
		if k.name == name {
			return k.value
		}
	}
	return nil
}

func (r *run) kwargsDict(named []namedArg) *Dict {
	d := NewDict()
	for _, k := range named {
		r.set(d, k.name, k.value)
	}
	return d
}

// signature is a list of parameters: "a b? c?"; those with ? may be left out. A slash before
// the list: none may be named.
type signature struct {
	names      []string
	required   int
	positional bool
}

func newSignature(text string) *signature {
	s := &signature{positional: strings.HasPrefix(text, "/")}
	for _, name := range strings.Fields(strings.TrimPrefix(text, "/")) {
		if !strings.HasSuffix(name, "?") {
			s.required++
		}
		s.names = append(s.names, strings.TrimSuffix(name, "?"))
	}
	return s
}

// bind shares arguments out; those not given are nil.
func (s *signature) bind(what string, g arguments) []Value {
	if len(g.pos) > len(s.names) {
		typeError("%s takes at most %d arguments (%d given)", what, len(s.names), len(g.pos))
	}
	values := make([]Value, len(s.names))
	// By position, then by name; each once.
	copy(values, g.pos)
	for _, k := range g.named {
		at := -1
		for i, name := range s.names {
			if name == k.name && !s.positional {
				at = i
			}
		}
		if at < 0 {
			typeError("%s got an unexpected keyword argument '%s'", what, k.name)
		}
		if values[at] != nil {
			typeError("%s got multiple values for argument '%s'", what, k.name)
		}
		values[at] = k.value
	}
	for i := range s.required {
		if values[i] == nil {
			typeError("%s missing required argument '%s'", what, s.names[i])
		}
	}
	return values
}

// function is what templates can call in addition to macros.
type callable struct {
	name string
	call func(r *run, g arguments) Value
}

// call calls a value.
func (r *run) call(x Value, g arguments) Value {
	switch x := x.(type) {
	case *macroValue:
		return r.callMacro(x, g)
	case *callable:
		return x.call(r, g)
	case *Undefined:
		x.use()
	case *loopContext:
		return x.call(r, newSignature("iterable").bind("loop()", g)[0])
	case *joiner:
		newSignature("").bind("joiner()", g)
		if !x.used {
			x.used = true
			return ""
		}
		return x.sep
	}
	typeError("'%s' object is not callable", typeName(x))
	return nil
}

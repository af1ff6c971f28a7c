package jinja

import "slices"

func dictMethod(d *Dict, name string) Value {
	// Jinja's sandbox refuses methods that change a dict.
	if slices.Contains(dictChanges, name) {
		return unsafeAttribute(d, name)
	}
	switch name {
	// Views, not copies.
	case "keys", "values", "items":
		return &callable{name, func(r *run, g arguments) Value {
			newSignature("").bind(name+"()", g)
			return &dictView{d, name}
		}}
	case "get":
		return &callable{name, func(r *run, g arguments) Value {
			args := newSignature("/key default?").bind("get()", g)
			if v := r.find(d, args[0]); v != nil {
				return v
			}
			if args[1] != nil {
				return args[1]
			}
			return None{}
		}}
	case "copy":
		return &callable{name, func(r *run, g arguments) Value {
			newSignature("").bind("copy()", g)
			return r.copyDict(d)
		}}
	case "fromkeys":
		return &callable{name, fromKeys}
	}
	return nil
}

// fromKeys is dict.fromkeys.
func fromKeys(r *run, g arguments) Value {
	args := newSignature("/iterable value?").bind("fromkeys()", g)
	value := args[1]
	if value == nil {
		value = None{}
	}
	d := NewDict()
	for _, k := range r.all(args[0]) {
		r.set(d, k, value)
	}
	return d
}

// newDict is dict(...) of a template.
func newDict(r *run, g arguments) Value {
	d := NewDict()
	if len(g.pos) > 1 {
		typeError("dict expected at most 1 argument, got %d", len(g.pos))
	}
	if len(g.pos) == 1 {
		switch x := g.pos[0].(type) {
		case *Dict:
			d = r.copyDict(x)
		case *namespace:
			typeError("'TemplateNamespace' object is not iterable")
		default:
			if u, is := x.(*Undefined); is && !u.unsafe {
				u.use() // Python asks it for its keys
			}
			for _, pair := range r.all(x) {
				items := r.all(pair)
				if len(items) != 2 {
					valueError("dictionary update sequence element has length %d; 2 is required", len(items))
				}
				r.set(d, items[0], items[1])
			}
		}
	}
	for _, k := range g.named {
		r.set(d, k.name, k.value)
	}
	return d
}

// sequenceMethod is a method of a list or tuple.
func sequenceMethod(x Value, items []Value, name string) Value {
	switch name {
	// Both compare with ==, as Python does.
	case "count":
		return &callable{name, func(r *run, g arguments) Value {
			wanted := newSignature("/value").bind("count()", g)[0]
			n := 0
			for _, item := range items {
				if r.equal(item, wanted, 0) {
					n++
				}
			}
			return n
		}}
	case "index":
		return &callable{name, func(r *run, g arguments) Value {
			args := newSignature("/value start? stop?").bind("index()", g)
			// start and stop count from the end where negative, as in slices.
			from, _, count, _ := sliceBounds(given(args[1]), given(args[2]), None{}, len(items))
			for i := from; i < from+count; i++ {
				if r.equal(items[i], args[0], 0) {
					return i
				}
			}
			valueError("%s.index(x): x not in %s", typeName(x), typeName(x))
			return nil
		}}
	}
	return nil
}

// given is an argument as a slice's bound.
func given(v Value) Value {
	if v == nil {
		return None{}
	}
	return v
}

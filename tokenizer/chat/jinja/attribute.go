package jinja

import (
	"math"
	"math/big"
	"math/bits"
	"slices"
	"strings"
)

// objectNames are the attributes of every object of Python, dictNames those more that a dict
// has: the sandbox finds them and calls them unsafe.
var (
	objectNames = strings.Fields("__class__ __delattr__ __dir__ __doc__ __eq__ __format__ __ge__ __getattribute__ __getstate__ __gt__ __hash__ __init__ __init_subclass__ __le__ __lt__ __ne__ __new__ __reduce__ __reduce_ex__ __repr__ __setattr__ __sizeof__ __str__ __subclasshook__")
	dictNames   = strings.Fields("__class_getitem__ __contains__ __delitem__ __getitem__ __ior__ __iter__ __len__ __or__ __reversed__ __ror__ __setitem__")
)

// Methods that change a value: the immutable sandbox calls them unsafe.
var (
	listChanges = strings.Fields("append clear pop reverse insert sort extend remove")
	dictChanges = strings.Fields("clear pop popitem setdefault update")
)

func unsafeAttribute(x Value, name string) Value {
	return &Undefined{unsafe: true, message: sprintf("access to attribute %s of %s object is unsafe.", reprString(cut(name, 0, 200)), reprString(typeName(x)))}
}

// safeAttribute is the attribute name of x as the sandbox gives it, nil where there is none.
func (r *run) safeAttribute(x Value, name string) Value {
	if strings.HasPrefix(name, "_") {
		if _, is := x.(*namespace); is && name != "__class__" {
			return nil
		}
		_, dict := x.(*Dict)
		if slices.Contains(objectNames, name) || dict && slices.Contains(dictNames, name) {
			return unsafeAttribute(x, name)
		}
		if _, is := x.(*Undefined); is && (strings.HasPrefix(name, "_undefined_") || name == "_fail_with_undefined_error") {
			return unsafeAttribute(x, name)
		}
		return nil
	}
	return r.attribute(x, name)
}

func (r *run) attribute(x Value, name string) Value {
	switch x := x.(type) {
	// Methods of Python's str, dict and sequences; what changes its object is unsafe in Jinja's sandbox.
	case *Undefined:
		x.use()
	case string, Markup:
		return stringMethod(x, name)
	case *Dict:
		return dictMethod(x, name)
	case *List:
		if slices.Contains(listChanges, name) {
			return unsafeAttribute(x, name)
		}
		if name == "copy" {
			return &callable{name, func(r *run, g arguments) Value {
				newSignature("").bind("copy()", g)
				return r.list(append([]Value{}, x.items...))
			}}
		}
		return sequenceMethod(x, x.items, name)
	case *Tuple:
		if at := slices.Index(x.names, name); at >= 0 {
			return x.items[at]
		}
		return sequenceMethod(x, x.items, name)
	// Objects of Jinja.
	case *namespace:
		return x.attrs.Get(name)
	case *loopContext:
		return x.attribute(r, name)
	case *macroValue:
		return x.attribute(r, name)
	case *rangeValue:
		switch name {
		case "start":
			return x.start
		case "stop":
			return x.stop
		case "step":
			return x.step
		case "index", "count":
			unsupported("the method %s of a range", name)
		}
	}
	return r.moreAttributes(x, name)
}

func (r *run) moreAttributes(x Value, name string) Value {
	switch x := x.(type) {
	// Objects of Jinja, then of Python, of which some attributes exist but are not supported: without an error they
	// would count as undefined.
	case *cycler:
		return x.attribute(name)
	case *joiner:
		switch name {
		case "sep":
			return x.sep
		case "used":
			return x.used
		}
	case *dictView:
		if name == "mapping" || name == "isdisjoint" {
			unsupported("the attribute %s of a %s", name, typeName(x))
		}
	case *iterator:
		if slices.Contains(strings.Fields("send throw close gi_code gi_frame gi_running gi_yieldfrom gi_suspended"), name) {
			unsupported("the attribute %s of a %s", name, typeName(x))
		}
	case *callable:
		if x.name == "dict" && name == "fromkeys" {
			return &callable{name, fromKeys}
		}
	case int, bool, *big.Int, float64:
		return numberAttribute(x, name)
	}
	return nil
}

func numberAttribute(x Value, name string) Value {
	f, isFloat := x.(float64)
	// method is a method without arguments that returns v.
	method := func(v Value) Value {
		return &callable{name, func(_ *run, g arguments) Value {
			newSignature("").bind(name+"()", g)
			return v
		}}
	}
	zero := Value(0)
	if isFloat {
		zero = 0.0
	}
	// What int and float have in common; bool is an int.
	switch name {
	case "real":
		return positive(x)
	case "imag":
		return zero
	case "conjugate":
		return method(positive(x))
	case "is_integer":
		if isFloat {
			return method(f == math.Trunc(f) && !math.IsInf(f, 0))
		}
		unsupported("the method is_integer of an int, which Python has only since 3.12")
	case "as_integer_ratio", "hex", "fromhex", "to_bytes", "from_bytes":
		unsupported("the method %s of a number", name)
	}
	if b, is := bigOf(x); is {
		return intAttribute(b, name, method)
	}
	return nil
}

// intAttribute is an attribute that ints alone have; method makes a method of its result.
func intAttribute(b *big.Int, name string, method func(Value) Value) Value {
	switch name {
	case "numerator":
		return normal(b)
	case "denominator":
		return 1
	case "bit_length":
		return method(b.BitLen())
	case "bit_count":
		n := 0
		for _, w := range new(big.Int).Abs(b).Bytes() {
			n += bits.OnesCount8(w)
		}
		return method(n)
	}
	return nil
}

func (m *macroValue) attribute(r *run, name string) Value {
	switch name {
	case "name":
		if !m.code.hasName {
			return None{}
		}
		return m.code.name
	case "arguments":
		items := []Value{}
		for _, a := range m.code.args {
			items = append(items, a)
		}
		return r.tuple(items...)
	case "catch_kwargs":
		return m.code.kwargs
	case "catch_varargs":
		return m.code.varargs
	case "caller":
		return m.code.caller
	case "explicit_caller":
		return m.code.hasCallerIn
	}
	return nil
}

func (c *cycler) attribute(name string) Value {
	// next and reset change the cycler, so they compute when they are called.
	method := func(f func() Value) Value {
		return &callable{name, func(_ *run, g arguments) Value {
			newSignature("").bind(name+"()", g)
			return f()
		}}
	}
	switch name {
	case "current":
		return c.items[c.pos]
	case "items":
		return &Tuple{items: c.items}
	case "pos":
		return c.pos
	case "next":
		return method(func() Value {
			v := c.items[c.pos]
			c.pos = (c.pos + 1) % len(c.items)
			return v
		})
	case "reset":
		return method(func() Value {
			c.pos = 0
			return None{}
		})
	}
	return nil
}

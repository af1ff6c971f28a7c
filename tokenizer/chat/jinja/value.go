package jinja

import (
	"math/big"
	"unicode/utf8"
)

// Value is one of: None, bool, int, *big.Int (only what does not fit int), float64, string (valid
// UTF-8), Markup, *List, *Tuple, *Dict, *Undefined, and what templates make or get by themselves:
// *rangeValue, *dictView, *iterator, *function, *macroValue, *namespace, *loopContext, *cycler,
// *joiner. A nil Value is not a value: a slot or an argument without one.
type Value any

// None is Python's None.
type None struct{}

// Markup is text that counts as escaped HTML (markupsafe.Markup).
type Markup string

// List is Python's list; nothing changes it once it is made.
type List struct{ items []Value }

// NewList makes a list of items, which it keeps.
func NewList(items []Value) *List { return &List{items} }

// Tuple is Python's tuple; names are those of a named tuple, as groupby makes.
type Tuple struct {
	items []Value
	names []string
}

// Undefined is jinja2.Undefined: what a lookup gives that finds nothing.
type Undefined struct {
	message string
	unsafe  bool // its use is a SecurityError
}

func undefinedName(name string) *Undefined {
	return &Undefined{message: reprString(name) + " is undefined"}
}

// use fails as any use of an undefined value does that its class does not allow.
func (u *Undefined) use() {
	if u.unsafe {
		fail("SecurityError", "%s", u.message)
	}
	fail("UndefinedError", "%s", u.message)
}

// namespace is what namespace() makes: names that can be assigned from inner scopes.
type namespace struct{ attrs *Dict }

// rangeValue is Python's range.
type rangeValue struct{ start, stop, step, n int }

func (x *rangeValue) at(i int) int { return x.start + i*x.step }

// cycler and joiner are Jinja's helpers of these names.
type cycler struct {
	items []Value
	pos   int
}

type joiner struct {
	sep  Value
	used bool
}

// typeName is the name of a value's class in Python.
func typeName(v Value) string {
	switch v := v.(type) {
	// Python's own classes.
	case None:
		return "NoneType"
	case bool:
		return "bool"
	case int, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case Markup:
		return "Markup"
	case *List:
		return "list"
	case *Tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case *Undefined:
		return "Undefined"
	case *rangeValue:
		return "range"
	case *dictView:
		return "dict_" + v.kind
	case *iterator:
		return v.class
	// Classes of Jinja and transformers.
	case *macroValue:
		return "Macro"
	case *namespace:
		return "TemplateNamespace"
	case *loopContext:
		return "LoopContext"
	case *cycler:
		return "Cycler"
	case *joiner:
		return "Joiner"
	}
	return "function"
}

// textOf is the text of a str or Markup.
func textOf(v Value) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case Markup:
		return string(v), true
	}
	return "", false
}

// like gives s the class of the text it comes from.
func like(of Value, s string) Value {
	if _, is := of.(Markup); is {
		return Markup(s)
	}
	return s
}

// truth is bool(v).
func (r *run) truth(v Value) bool {
	switch v := v.(type) {
	case None, *Undefined:
		return false
	case bool:
		return v
	case int:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case Markup:
		return v != ""
	}
	if n, has := r.length(v); has {
		return n > 0
	}
	return true
}

// length is len(v); has is false for what has none.
func (r *run) length(v Value) (n int, has bool) {
	switch v := v.(type) {
	case string:
		r.scan(len(v))
		return utf8.RuneCountInString(v), true
	case Markup:
		r.scan(len(v))
		return utf8.RuneCountInString(string(v)), true
	case *List:
		return len(v.items), true
	case *Tuple:
		return len(v.items), true
	case *Dict:
		return v.Len(), true
	case *Undefined:
		return 0, true
	case *rangeValue:
		return v.n, true
	case *dictView:
		return v.dict.Len(), true
	case *loopContext:
		return v.length(r), true
	}
	return 0, false
}

// list makes a list and counts it.
func (r *run) list(items []Value) *List {
	r.alloc(48 + 16*len(items))
	return &List{items: items}
}

func (r *run) tuple(items ...Value) *Tuple {
	r.alloc(48 + 16*len(items))
	return &Tuple{items: items}
}

// Items are a list's items, which must not be changed.
func (l *List) Items() []Value { return l.items }

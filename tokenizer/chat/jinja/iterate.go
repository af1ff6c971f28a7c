package jinja

import "unicode/utf8"

// iterator is a generator or another iterator of Python: it gives each item once.
type iterator struct {
	class string // of Python
	next  func() Value
}

func newGenerator(next func() Value) *iterator { return &iterator{"generator", next} }

// iterate is iter(v): a function that gives the items, then nil.
func (r *run) iterate(v Value) func() Value {
	i := -1
	// count gives item(0) to item(n-1); each item counts as a step.
	count := func(n int, item func(i int) Value) func() Value {
		return func() Value {
			if i++; i >= n {
				i = n
				return nil
			}
			r.step(1)
			return item(i)
		}
	}
	switch v := v.(type) {
	case *List:
		return count(len(v.items), func(i int) Value { return v.items[i] })
	case *Tuple:
		return count(len(v.items), func(i int) Value { return v.items[i] })
	case *Dict:
		return count(len(v.keys), func(i int) Value { return v.keys[i] })
	case *dictView:
		return count(v.dict.Len(), func(i int) Value { return v.at(r, i) })
	case *rangeValue:
		return count(v.n, func(i int) Value { return v.at(i) })
	case *iterator:
		return v.next
	case *Undefined:
		return func() Value { return nil }
	case *loopContext:
		unsupported("iterating over the variable loop")
	}
	// Text by character, as str.
	if s, is := textOf(v); is {
		return func() Value {
			if s == "" {
				return nil
			}
			r.alloc(16)
			r.step(1)
			_, n := utf8.DecodeRuneInString(s)
			c := s[:n]
			s = s[n:]
			return c
		}
	}
	typeError("'%s' object is not iterable", typeName(v))
	return nil
}

func iterable(v Value) bool {
	switch v.(type) {
	case *List, *Tuple, *Dict, *dictView, *rangeValue, *iterator, *Undefined, *loopContext, string, Markup:
		return true
	}
	return false
}

// all are the items of v.
func (r *run) all(v Value) []Value {
	var items []Value
	next := r.iterate(v)
	for item := next(); item != nil; item = next() {
		r.alloc(40)
		items = append(items, item)
	}
	return items
}

// reversed is Python's reversed(v); has is false where that is a TypeError.
func (r *run) reversed(v Value) (it *iterator, has bool) {
	// The iterator's class as Python names it, which templates can print.
	class := map[string]string{"list": "list_reverseiterator", "dict": "dict_reversekeyiterator", "range": "range_iterator"}[typeName(v)]
	if class == "" {
		class = "reversed"
	}
	// n items, of which at(i) is the i-th; items are read when they are asked for.
	n, at := 0, func(int) Value { return nil }
	switch v := v.(type) {
	case *List:
		n, at = len(v.items), func(i int) Value { return v.items[i] }
	case *Tuple:
		n, at = len(v.items), func(i int) Value { return v.items[i] }
	case *Dict:
		n, at = len(v.keys), func(i int) Value { return v.keys[i] }
	case *dictView:
		n, at = v.dict.Len(), func(i int) Value { return v.at(r, i) }
	case *rangeValue:
		n, at = v.n, func(i int) Value { return v.at(i) }
	case *Undefined:
	case string, Markup:
		items := r.all(v)
		n, at = len(items), func(i int) Value { return like(v, items[i].(string)) }
	default:
		return nil, false
	}
	return &iterator{class, func() Value {
		if n == 0 {
			return nil
		}
		r.step(1)
		n--
		return at(n)
	}}, true
}

package jinja

import (
	"unicode/utf8"
)

// getitem is x[key] in a template: the item, else the attribute of that name.
func (r *run) getitem(x, key Value) Value {
	r.step(1)
	if v := r.item(x, key); v != nil {
		return v
	}
	name, is := textOf(key)
	if is {
		if v := r.safeAttribute(x, name); v != nil {
			return v
		}
	}
	if is {
		return r.missing(x, name)
	}
	return &Undefined{message: sprintf("%s has no such element", objectName(x))}
}

// getattr is x.name in a template: the attribute, else the item of that name.
func (r *run) getattr(x Value, name string) Value {
	if v := r.safeAttribute(x, name); v != nil {
		return v
	}
	if v := r.item(x, name); v != nil {
		return v
	}
	return r.missing(x, name)
}

func (r *run) missing(x Value, name string) Value {
	return &Undefined{message: sprintf("%s has no attribute %s", reprString(objectName(x)), reprString(cut(name, 0, 200)))}
}

func objectName(x Value) string {
	if _, none := x.(None); none {
		return "None"
	}
	return typeName(x) + " object"
}

// item is Python's x[key], nil where that is a TypeError or LookupError.
func (r *run) item(x, key Value) Value {
	switch x := x.(type) {
	case *Undefined:
		x.use()
	case *Dict:
		if !hashable(key) {
			return nil
		}
		return r.find(x, key)
	case *callable, *macroValue:
		return nil
	}
	// A sequence with an integer.
	n, has := r.length(x)
	if _, sequence := x.(*dictView); !has || sequence || !isInt(key) {
		return nil
	}
	i := index(key, "index")
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return nil
	}
	switch x := x.(type) {
	case *List:
		return x.items[i]
	case *Tuple:
		return x.items[i]
	case *rangeValue:
		return x.at(i)
	}
	if s, is := textOf(x); is {
		return like(x, runeAt(s, i, n))
	}
	return nil
}

func hashable(v Value) bool {
	switch v := v.(type) {
	case *List, *Dict:
		return false
	case *Tuple:
		for _, x := range v.items {
			if !hashable(x) {
				return false
			}
		}
	}
	return true
}

// runeAt is the character number i of s, which has n.
func runeAt(s string, i, n int) string {
	if n == len(s) {
		return s[i : i+1]
	}
	for at := range s {
		if i == 0 {
			_, size := utf8.DecodeRuneInString(s[at:])
			return s[at : at+size]
		}
		i--
	}
	return ""
}

// slice is x[start:stop:step]; None: not given.
func (r *run) slice(x, start, stop, step Value) Value {
	if u, is := x.(*Undefined); is {
		u.use()
	}
	// What has items in an order that can be cut.
	n, has := r.length(x)
	switch x.(type) {
	case *Dict, *dictView, *loopContext:
		has = false
	}
	if !has {
		typeError("'%s' object cannot be sliced", typeName(x))
	}
	from, to, count, by := sliceBounds(start, stop, step, n)
	switch x := x.(type) {
	case *List:
		return &List{items: r.pick(x.items, from, count, by)}
	case *Tuple:
		return &Tuple{items: r.pick(x.items, from, count, by)}
	case *rangeValue:
		return &rangeValue{x.start + from*x.step, x.start + to*x.step, x.step * by, count}
	}
	// Texts are cut by characters.
	s, _ := textOf(x)
	r.scan(len(s))
	if by == 1 {
		r.alloc(16)
		return like(x, cut(s, from, from+count))
	}
	runes := []rune(s)
	r.alloc(4*len(runes) + 4*count)
	out := make([]rune, count)
	for i := range out {
		out[i] = runes[from+i*by]
	}
	return like(x, string(out))
}

func (r *run) pick(items []Value, from, count, by int) []Value {
	r.allocTimes(count+3, 16)
	out := make([]Value, count)
	for i := range out {
		out[i] = items[from+i*by]
	}
	return out
}

// sliceBounds is where a slice of n items begins and ends, how many it takes, and how far from
// each other.
func sliceBounds(start, stop, step Value, n int) (from, to, count, by int) {
	// As slice.indices: from the end where negative, and within what there is.
	bound := func(v Value, absent, low, high int) int {
		if _, none := v.(None); none {
			return absent
		}
		i := index(v, "slice indices must be integers or None")
		if i < 0 {
			i += n
		}
		return max(low, min(i, high))
	}
	by = 1
	if _, none := step.(None); !none {
		by = index(step, "slice indices must be integers or None")
	}
	if by == 0 {
		valueError("slice step cannot be zero")
	}
	if by > 0 {
		from = bound(start, 0, 0, n)
		to = bound(stop, n, 0, n)
		count = max(0, (to-from+by-1)/by)
	} else {
		from = bound(start, n-1, -1, n-1)
		to = bound(stop, -1, -1, n-1)
		count = max(0, (from-to-by-1)/-by)
	}
	return from, to, count, by
}

package jinja

import (
	"cmp"
	"math"
	"math/big"
	"sort"
	"strings"
)

// compare is x OP y.
func (r *run) compare(op string, x, y Value) bool {
	switch op {
	case "eq":
		return r.equal(x, y, 0)
	case "ne":
		return !r.equal(x, y, 0)
	case "in":
		return r.contains(y, x)
	case "notin":
		return !r.contains(y, x)
	}
	return r.order(op, x, y, 0)
}

// compareNumbers is -1, 0 or 1, exact between ints and floats; 2 where one is nan.
func compareNumbers(x, y Value) int {
	a, isA := smallOf(x)
	b, isB := smallOf(y)
	if isA && isB {
		return cmp.Compare(a, b)
	}
	f, isF := x.(float64)
	g, isG := y.(float64)
	switch {
	case isF && math.IsNaN(f), isG && math.IsNaN(g):
		return 2
	case isF && isG:
		return cmp.Compare(f, g)
	case isF && math.IsInf(f, 0):
		return intOf(f > 0)*2 - 1
	case isG && math.IsInf(g, 0):
		return intOf(g < 0)*2 - 1
	}
	return ratOf(x).Cmp(ratOf(y))
}

func ratOf(v Value) *big.Rat {
	if f, is := v.(float64); is {
		return new(big.Rat).SetFloat64(f)
	}
	b, _ := bigOf(v)
	return new(big.Rat).SetInt(b)
}

// equal is x == y.
func (r *run) equal(x, y Value, depth int) bool {
	r.step(1)
	r.deep(depth)
	// Numbers compare by value over bool, int and float; str and Markup by text.
	if isNumber(x) && isNumber(y) {
		return compareNumbers(x, y) == 0
	}
	if a, is := textOf(x); is {
		b, is := textOf(y)
		if is && len(a) == len(b) {
			r.scan(len(a))
		}
		return is && a == b
	}
	// Other values are equal to those of their own type only.
	switch a := x.(type) {
	case None:
		_, is := y.(None)
		return is
	case *Undefined:
		_, is := y.(*Undefined)
		return is
	case *List:
		b, is := y.(*List)
		return is && r.equalItems(a.items, b.items, depth)
	case *Tuple:
		b, is := y.(*Tuple)
		return is && r.equalItems(a.items, b.items, depth)
	case *Dict:
		b, is := y.(*Dict)
		return is && r.equalDicts(a, b, depth)
	case *rangeValue:
		b, is := y.(*rangeValue)
		return is && a.n == b.n && (a.n == 0 || a.start == b.start && (a.n == 1 || a.step == b.step))
	case *dictView:
		if b, is := y.(*dictView); is && a.kind != "values" && b.kind != "values" {
			unsupported("comparing the keys or items of dicts")
		}
	case *callable:
		if b, is := y.(*callable); is && a != b && a.name == b.name {
			unsupported("comparing functions")
		}
	}
	// The same object, such as a macro.
	return x == y
}

func (r *run) equalItems(a, b []Value, depth int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !r.equal(a[i], b[i], depth+1) {
			return false
		}
	}
	return true
}

func (r *run) equalDicts(a, b *Dict, depth int) bool {
	if a.Len() != b.Len() {
		return false
	}
	for i, k := range a.keys {
		other := r.find(b, k)
		if other == nil || !r.equal(a.values[i], other, depth+1) {
			return false
		}
	}
	return true
}

// holds reports whether a comparison's result (-1, 0, 1) is what an operator asks for.
func holds(op string, c int) bool {
	switch op {
	case "lt":
		return c < 0
	case "lteq":
		return c <= 0
	case "gt":
		return c > 0
	}
	return c >= 0
}

// order is x < y and its like, by Jinja's names of the operators.
func (r *run) order(op string, x, y Value, depth int) bool {
	r.step(1)
	r.deep(depth)
	if isNumber(x) && isNumber(y) {
		c := compareNumbers(x, y)
		return c != 2 && holds(op, c)
	}
	if a, is := textOf(x); is {
		if b, is := textOf(y); is {
			r.scan(min(len(a), len(b)))
			return holds(op, strings.Compare(a, b)) // UTF-8 has the order of code points
		}
	}
	a, b, both := sequences(x, y)
	if !both {
		unsupportedOperands(map[string]string{"lt": "<", "lteq": "<=", "gt": ">", "gteq": ">="}[op], x, y)
	}
	for i := range min(len(a), len(b)) {
		if !r.equal(a[i], b[i], depth+1) {
			return r.order(op, a[i], b[i], depth+1)
		}
	}
	return holds(op, cmp.Compare(len(a), len(b)))
}

// sequences are the items of two lists or two tuples.
func sequences(x, y Value) (a, b []Value, both bool) {
	switch l := x.(type) {
	case *List:
		if m, is := y.(*List); is {
			return l.items, m.items, true
		}
	case *Tuple:
		if m, is := y.(*Tuple); is {
			return l.items, m.items, true
		}
	case *dictView:
		if _, is := y.(*dictView); is {
			unsupported("comparing the keys or items of dicts")
		}
	}
	return nil, nil, false
}

// contains is x in y.
func (r *run) contains(y, x Value) bool {
	// Types that answer without iterating: text by substring, dicts by key.
	switch c := y.(type) {
	case string, Markup:
		s, _ := textOf(c)
		part, is := textOf(x)
		if !is {
			typeError("'in <string>' requires string as left operand, not %s", typeName(x))
		}
		r.scan(len(s))
		return strings.Contains(s, part)
	case *Dict:
		return r.find(c, x) != nil
	case *dictView:
		if c.kind == "keys" {
			return r.find(c.dict, x) != nil
		}
	case *rangeValue:
		// A range has numbers only, and NaN equals none of them.
		if f, is := x.(float64); is && math.IsNaN(f) || !isNumber(x) {
			return false
		}
	case *loopContext:
		unsupported("the operator in with the variable loop")
	}
	// All others by comparing their items in turn.
	if !iterable(y) {
		typeError("argument of type '%s' is not iterable", typeName(y))
	}
	next := r.iterate(y)
	for item := next(); item != nil; item = next() {
		if r.equal(item, x, 0) {
			return true
		}
	}
	return false
}

// sorted is Python's sorted: stable, by keys.
func (r *run) sorted(items, keys []Value, reverse bool) []Value {
	for _, k := range keys {
		refuseNaN(k)
	}
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	r.allocTimes(len(items), 24)
	sort.SliceStable(order, func(i, j int) bool {
		if reverse {
			return r.order("lt", keys[order[j]], keys[order[i]], 0)
		}
		return r.order("lt", keys[order[i]], keys[order[j]], 0)
	})
	out := make([]Value, len(items))
	for i, at := range order {
		out[i] = items[at]
	}
	return out
}

// refuseNaN refuses keys that have no order, whose result depends on the way of sorting.
func refuseNaN(v Value) {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) {
			unsupported("sorting nan")
		}
	case *List:
		for _, x := range v.items {
			if f, is := x.(float64); is {
				refuseNaN(f)
			}
		}
	}
}

package jinja

import "strings"

func init() {
	if filters == nil {
		filters = map[string]filter{}
	}
	add := func(name, params string, do func(r *run, v Value, args []Value) Value) {
		filters[name] = filter{params: newSignature(params), do: do}
	}
	add("sort", "reverse? case_sensitive? attribute?", sortFilter)
	add("dictsort", "case_sensitive? by? reverse?", dictSort)
	add("unique", "case_sensitive? attribute?", uniqueFilter)
	add("groupby", "attribute default? case_sensitive?", groupBy)
	for name, op := range map[string]string{"min": "lt", "max": "gt"} {
		add(name, "case_sensitive? attribute?", func(r *run, v Value, args []Value) Value { return r.extreme(v, args, op) })
	}
}

func (r *run) flag(v Value) bool { return v != nil && r.truth(v) }

// folded is a key in lower case, where case does not count.
func folded(v Value, caseSensitive bool) Value {
	if s, is := textOf(v); is && !caseSensitive {
		return like(v, lower(s))
	}
	return v
}

func sortFilter(r *run, v Value, args []Value) Value {
	attributes := []Value{given(args[2])}
	if s, is := textOf(given(args[2])); is {
		attributes = nil
		for _, a := range strings.Split(s, ",") {
			attributes = append(attributes, a)
		}
	}
	items := r.all(v)
	keys := make([]Value, len(items))
	for i, item := range items {
		var key []Value
		for _, a := range attributes {
			key = append(key, folded(r.attrGetter(a, nil)(item), r.flag(args[1])))
		}
		keys[i] = r.list(key)
	}
	return r.list(r.sorted(items, keys, r.flag(args[0])))
}

func dictSort(r *run, v Value, args []Value) Value {
	by := "key"
	if args[1] != nil {
		by, _ = textOf(args[1])
	}
	if by != "key" && by != "value" {
		fail("FilterArgumentError", `You can only sort by either "key" or "value"`)
	}
	d, is := v.(*Dict)
	if !is {
		if u, undefined := v.(*Undefined); undefined {
			u.use()
		}
		fail("AttributeError", "'%s' object has no attribute 'items'", typeName(v))
	}
	keys := make([]Value, d.Len())
	for i := range keys {
		key := d.keys[i]
		if by == "value" {
			key = d.values[i]
		}
		keys[i] = folded(key, r.flag(args[0]))
	}
	return r.list(r.sorted(r.all(&dictView{d, "items"}), keys, r.flag(args[2])))
}

func uniqueFilter(r *run, v Value, args []Value) Value {
	return lazily(func() func() Value {
		get := r.attrGetter(args[1], nil)
		seen := NewDict()
		next := r.iterate(v)
		return func() Value {
			for item := next(); item != nil; item = next() {
				key := folded(get(item), r.flag(args[0]))
				if r.find(seen, key) == nil {
					r.set(seen, key, true)
					return item
				}
			}
			return nil
		}
	})
}

// extreme is the first item that no other is less than ("lt") or greater than ("gt").
func (r *run) extreme(v Value, args []Value, op string) Value {
	next := r.iterate(v)
	best := next()
	if best == nil {
		return &Undefined{message: "No aggregated item, sequence was empty."}
	}
	get := r.attrGetter(args[1], nil)
	key := folded(get(best), r.flag(args[0]))
	for item := next(); item != nil; item = next() {
		if k := folded(get(item), r.flag(args[0])); r.order(op, k, key, 0) {
			best, key = item, k
		}
	}
	return best
}

func groupBy(r *run, v Value, args []Value) Value {
	absent := args[1]
	if _, none := given(absent).(None); none {
		absent = nil
	}
	get := r.attrGetter(args[0], absent)
	items := r.all(v)
	keys := make([]Value, len(items))
	for i, item := range items {
		keys[i] = folded(get(item), r.flag(args[2]))
	}
	items = r.sorted(items, keys, false)
	var groups []Value
	var group *List
	var last Value
	for _, item := range items {
		key := folded(get(item), r.flag(args[2]))
		if group == nil || !r.equal(last, key, 0) {
			group = r.list(nil)
			groups = append(groups, &Tuple{items: []Value{get(item), group}, names: []string{"grouper", "list"}})
			last = key
		}
		r.alloc(16)
		group.items = append(group.items, item)
	}
	return r.list(groups)
}

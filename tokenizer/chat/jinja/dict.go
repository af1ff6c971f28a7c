package jinja

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strconv"
)

// Dict is Python's dict: keys in the order they came, equal where Python's are (1, 1.0 and True
// are one key).
type Dict struct {
	keys, values []Value
	at           map[hashKey]int
}

// hashKey is equal for keys that Python calls equal.
type hashKey struct {
	kind byte
	text string
}

// NewDict makes an empty dict.
func NewDict() *Dict { return &Dict{at: map[hashKey]int{}} }

// Len is the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

// Set gives a name a value; an existing name keeps its position.
func (d *Dict) Set(name string, v Value) { d.put(hashKey{'s', name}, name, v) }

// Get is the value of a name, nil where there is none.
func (d *Dict) Get(name string) Value {
	if i, found := d.at[hashKey{'s', name}]; found {
		return d.values[i]
	}
	return nil
}

// Without is a copy without the keys that drop names.
func (d *Dict) Without(drop func(key, value Value) bool) *Dict {
	out := NewDict()
	for i, k := range d.keys {
		if !drop(k, d.values[i]) {
			out.put(d.hashOf(i), k, d.values[i])
		}
	}
	return out
}

func (d *Dict) hashOf(i int) hashKey {
	var r run
	r.limits = DefaultLimits
	return r.hash(d.keys[i], 0)
}

func (d *Dict) put(h hashKey, k, v Value) {
	if i, found := d.at[h]; found {
		d.values[i] = v
		return
	}
	d.at[h] = len(d.keys)
	d.keys, d.values = append(d.keys, k), append(d.values, v)
}

// set is d[k] = v of a dict under construction.
func (r *run) set(d *Dict, k, v Value) {
	r.alloc(200)
	d.put(r.hash(k, 0), k, v)
}

// find is d[k]; nil where there is none.
func (r *run) find(d *Dict, k Value) Value {
	if i, found := d.at[r.hash(k, 0)]; found {
		return d.values[i]
	}
	return nil
}

func (r *run) copyDict(d *Dict) *Dict {
	out := NewDict()
	for i, k := range d.keys {
		r.set(out, k, d.values[i])
	}
	return out
}

// hash is the key of a value, an error for what Python cannot hash.
func (r *run) hash(v Value, depth int) hashKey {
	r.step(1)
	r.deep(depth)
	// Equal values have equal keys: str and Markup, True and 1, 1 and 1.0 (hashFloat).
	switch v := v.(type) {
	case string:
		r.scan(len(v))
		return hashKey{'s', v}
	case Markup:
		r.scan(len(v))
		return hashKey{'s', string(v)}
	case None:
		return hashKey{'n', ""}
	case bool:
		return r.hash(intOf(v), depth)
	case int:
		return hashKey{'i', strconv.Itoa(v)}
	case *big.Int:
		return hashKey{'i', v.Text(16) + "h"}
	case float64:
		return r.hashFloat(v)
	case *Tuple:
		text := []byte{}
		// Length before text, so that ("ab", "c") differs from ("a", "bc").
		for _, x := range v.items {
			h := r.hash(x, depth+1)
			text = binary.AppendUvarint(append(text, h.kind), uint64(len(h.text)))
			text = append(text, h.text...)
			r.alloc(len(h.text) + 8)
		}
		return hashKey{'t', string(text)}
	case *Undefined:
		return hashKey{'u', ""}
	case *List, *Dict:
		typeError("unhashable type: '%s'", typeName(v))
	case *rangeValue:
		unsupported("a range as a key")
	}
	// Other objects are equal only to themselves.
	return hashKey{'p', fmt.Sprintf("%p", v)}
}

func (r *run) hashFloat(v float64) hashKey {
	if math.IsNaN(v) {
		unsupported("nan as a key")
	}
	if v == math.Trunc(v) && !math.IsInf(v, 0) {
		integer, _ := big.NewFloat(v).Int(nil)
		return r.hash(normal(integer), 0)
	}
	return hashKey{'f', strconv.FormatUint(math.Float64bits(v), 16)}
}

// dictView is what keys(), values() and items() give.
type dictView struct {
	dict *Dict
	kind string // "keys", "values", "items"
}

func (v *dictView) at(r *run, i int) Value {
	switch v.kind {
	case "keys":
		return v.dict.keys[i]
	case "values":
		return v.dict.values[i]
	}
	return r.tuple(v.dict.keys[i], v.dict.values[i])
}

// Names are the keys of a dict that are str, in their order.
func (d *Dict) Names() []string {
	names := make([]string, 0, len(d.keys))
	for _, k := range d.keys {
		if s, is := k.(string); is {
			names = append(names, s)
		}
	}
	return names
}

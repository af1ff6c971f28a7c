package pickle

import (
	"fmt"
	"math/big"
)

// Value is what a pickle becomes: nil, bool, int64, *big.Int, float64, string,
// Bytes, *List, *Tuple, *Dict, *Set, Size, DType, Class, *Object, *Storage or
// *Tensor. Containers may contain themselves.
type Value any

// Bytes is Python's bytes or bytearray.
type Bytes []byte

// Size is torch.Size.
type Size []int64

// DType is an element type by torch's name, such as bfloat16.
type DType string

// Class is a class or function that is mentioned by name, such as "torch.Tensor".
type Class string

// List is a list.
type List struct {
	Items []Value
	depth int
}

// Tuple is a tuple.
type Tuple struct {
	Items []Value
	depth int
}

// Set is a set or frozenset.
type Set struct {
	Items  []Value
	Frozen bool
	depth  int
}

// Pair is an entry of a Dict.
type Pair struct{ Key, Value Value }

// Dict is a dict, OrderedDict or defaultdict, in the order of its making; a key
// that came twice is there twice.
type Dict struct {
	Class string // "" for a plain dict
	Pairs []Pair
	State Value // attributes, such as a state dict's _metadata
	depth int

	index map[string]int // by string keys, made on first use
	sized int            // pairs that index knows
}

// Object is an instance of a listed class: what its pickle said of it, inert.
type Object struct {
	Class string  // with its module
	New   bool    // made by NEWOBJ, as instances are, not by a call
	Args  []Value // of its making; an enumeration's value or name
	State Value   // of BUILD, as a rule a *Dict
	depth int
}

// Get finds a string key; the last one where it came twice.
func (d *Dict) Get(key string) (Value, bool) {
	if d == nil {
		return nil, false
	}
	if d.index == nil {
		d.index = map[string]int{}
	}
	for ; d.sized < len(d.Pairs); d.sized++ {
		if s, ok := d.Pairs[d.sized].Key.(string); ok {
			d.index[s] = d.sized
		}
	}
	i, ok := d.index[key]
	if !ok {
		return nil, false
	}
	return d.Pairs[i].Value, true
}

// Set adds or replaces a string key.
func (d *Dict) Set(key string, v Value) {
	if _, ok := d.Get(key); ok {
		d.Pairs[d.index[key]].Value = v
		return
	}
	d.Pairs = append(d.Pairs, Pair{key, v})
}

// NewDict makes a dict of alternating string keys and values.
func NewDict(pairs ...any) *Dict {
	d := &Dict{}
	for i := 0; i+1 < len(pairs); i += 2 {
		d.Pairs = append(d.Pairs, Pair{pairs[i], pairs[i+1]})
	}
	return d
}

// Attributes is the dict of an object's attributes; nil where it has none.
func (o *Object) Attributes() *Dict {
	d, _ := o.State.(*Dict)
	return d
}

// Items lists what a list or tuple holds; ok is false for anything else.
func Items(v Value) (items []Value, ok bool) {
	switch v := v.(type) {
	case *List:
		return v.Items, true
	case *Tuple:
		return v.Items, true
	case Size:
		for _, n := range v {
			items = append(items, n)
		}
		return items, true
	}
	return nil, false
}

// Int is an integer, a bool or an enumeration-free number without fraction.
func Int(v Value) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case float64:
		if n := int64(v); float64(n) == v {
			return n, true
		}
	}
	return 0, false
}

// Float is a number as float64.
func Float(v Value) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		return f, true
	}
	n, ok := Int(v)
	return float64(n), ok
}

// Ints is a list of integers, such as a shape.
func Ints(v Value) ([]int64, bool) {
	if s, ok := v.(Size); ok {
		return s, true
	}
	items, ok := Items(v)
	if !ok {
		return nil, false
	}
	list := make([]int64, len(items))
	for i, item := range items {
		if list[i], ok = item.(int64); !ok {
			return nil, false
		}
	}
	return list, true
}

// TypeName says what a value is, for messages.
func TypeName(v Value) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case string:
		return "str"
	case *Dict:
		if v.Class != "" {
			return v.Class
		}
		return "dict"
	case *List:
		return "list"
	case *Tuple:
		return "tuple"
	case *Object:
		return v.Class
	case Class:
		return string(v)
	case *Tensor:
		return "tensor"
	case *Storage:
		return "storage"
	}
	return fmt.Sprintf("%T", v)
}

func depthOf(v Value) int {
	switch v := v.(type) {
	case *List:
		return v.depth
	case *Tuple:
		return v.depth
	case *Dict:
		return v.depth
	case *Set:
		return v.depth
	case *Object:
		return v.depth
	}
	return 0
}

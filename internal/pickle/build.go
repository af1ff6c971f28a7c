package pickle

import (
	"strings"
	"unicode/utf8"
)

// global pushes a listed class; any other name ends the reading.
func (m *machine) global(module, name string) error {
	full := module + "." + name
	switch classes[full] {
	case 0:
		return m.errorf("the pickle names %q, which no checkpoint needs; nothing was executed", full)
	case dtype:
		return m.push(DType(name))
	}
	return m.push(Class(full))
}

// instance is NEWOBJ.
func (m *machine) instance(items []Value, err error) error {
	if err := m.reduce(items, err); err != nil {
		return err
	}
	if o, ok := m.stack[len(m.stack)-1].(*Object); ok {
		o.New = true
	}
	return nil
}

// reduce is REDUCE: what calling a class with arguments becomes.
func (m *machine) reduce(items []Value, err error) error {
	if err != nil {
		return err
	}
	class, ok := items[0].(Class)
	args, isTuple := items[1].(*Tuple)
	if !ok || !isTuple {
		return m.errorf("the pickle makes a call with values of types %s and %s; a call needs a class and a tuple", TypeName(items[0]), TypeName(items[1]))
	}
	switch classes[string(class)] {
	case record, enum:
		depth := depthAbove(args.Items...)
		return m.made(&Object{Class: string(class), Args: args.Items, depth: depth}, depth)
	case mapping:
		return m.mapping(class, args.Items)
	case function:
		v, err := builders[string(class)](m, string(class), args.Items)
		if err != nil {
			return err
		}
		return m.made(v, depthOf(v))
	}
	return m.errorf("the pickle calls %s, which a checkpoint may name but not call", class)
}

func (m *machine) mapping(class Class, args []Value) error {
	name := string(class)
	if strings.HasSuffix(name, ".dict") {
		name = ""
	}
	d := &Dict{Class: name, depth: 1}
	if len(args) > 0 && name != "collections.defaultdict" { // protocol 2 may give a list of pairs
		pairs, ok := Items(args[0])
		if !ok || len(args) > 1 {
			return m.errorf("%s is built from a value of type %s, which is not allowed", class, TypeName(args[0]))
		}
		for _, p := range pairs {
			pair, ok := Items(p)
			if !ok || len(pair) != 2 {
				return m.errorf("%s is built from something other than pairs", class)
			}
			if err := m.setItems(d, pair); err != nil {
				return err
			}
		}
	}
	return m.made(d, d.depth)
}

// build is BUILD: attributes of an instance.
func (m *machine) build(items []Value, err error) error {
	if err != nil {
		return err
	}
	v, err := m.top()
	if err != nil {
		return err
	}
	switch o := v.(type) {
	case *Object:
		o.State = items[0]
		return m.grow(&o.depth, items[0])
	case *Dict:
		o.State = items[0]
		return m.grow(&o.depth, items[0])
	case *Tensor:
		return nil // Python attributes of a tensor
	}
	return m.errorf("the opcode BUILD is applied to a value of type %s, which is not allowed", TypeName(v))
}

func (m *machine) persist(id Value) error {
	if m.persistent == nil {
		return m.errorf("the pickle has a persistent id, which only files of torch.save have")
	}
	items, ok := Items(id)
	if !ok {
		return m.errorf("a persistent id has the type %s; it must be a tuple", TypeName(id))
	}
	v, err := m.persistent(items)
	if err != nil {
		return m.errorf("%v", err)
	}
	return m.push(v)
}

// builders make what the listed functions would return.
var builders map[string]func(m *machine, name string, args []Value) (Value, error)

func init() {
	// What a file may call: each builds a value of this package, and nothing else is executed.
	builders = map[string]func(m *machine, name string, args []Value) (Value, error){
		"torch._utils._rebuild_tensor":               buildTensor,
		"torch._utils._rebuild_tensor_v2":            buildTensor,
		"torch._utils._rebuild_tensor_v3":            buildTensorV3,
		"torch._utils._rebuild_parameter":            firstTensor,
		"torch._utils._rebuild_parameter_with_state": firstTensor,
		"torch._tensor._rebuild_from_type_v2":        buildFromType,
		"torch._utils._rebuild_sparse_tensor":        opaque,
		"torch.serialization._get_layout":            opaque,
		"torch.Size":                                 buildSize,
		"_codecs.encode":                             buildEncoded,
		"builtins.bytes":                             buildBytes,
		"builtins.bytearray":                         buildBytes,
		"builtins.set":                               buildSet,
		"builtins.frozenset":                         buildSet,
		"builtins.getattr":                           buildAttribute,
		"numpy.core.multiarray._reconstruct":         buildArray,
		"numpy.core.multiarray.scalar":               opaque,
		"numpy.core.numeric._frombuffer":             opaque,
	}
	// Other names of the same: Python 2's builtins, numpy 2's core.
	for name, build := range builders {
		if strings.HasPrefix(name, "builtins.") {
			builders["__builtin__."+strings.TrimPrefix(name, "builtins.")] = build
		}
		if strings.HasPrefix(name, "numpy.core.") {
			builders["numpy._core."+strings.TrimPrefix(name, "numpy.core.")] = build
		}
	}
}

func (m *machine) badArgs(name string, args []Value) error {
	types := make([]string, 0, len(args))
	for _, a := range args[:min(len(args), 8)] {
		types = append(types, TypeName(a))
	}
	return m.errorf("the pickle calls %s with (%s), which is not allowed", name, strings.Join(types, ", "))
}

func opaque(_ *machine, name string, args []Value) (Value, error) {
	return &Object{Class: name, Args: args, depth: depthAbove(args...)}, nil
}

func firstTensor(m *machine, name string, args []Value) (Value, error) {
	if len(args) > 0 {
		if t, ok := args[0].(*Tensor); ok {
			return t, nil
		}
	}
	return nil, m.badArgs(name, args)
}

// buildFromType is _rebuild_from_type_v2(function, type, arguments, state).
func buildFromType(m *machine, name string, args []Value) (Value, error) {
	if len(args) != 4 {
		return nil, m.badArgs(name, args)
	}
	inner, ok := args[0].(Class)
	list, also := args[2].(*Tuple)
	if !ok || !also || !strings.HasPrefix(string(inner), "torch._utils._rebuild_") {
		return nil, m.badArgs(name, args)
	}
	return builders[string(inner)](m, string(inner), list.Items)
}

func buildSize(m *machine, name string, args []Value) (Value, error) {
	if len(args) == 1 {
		if dims, ok := Ints(args[0]); ok {
			return Size(dims), nil
		}
	}
	return nil, m.badArgs(name, args)
}

// buildEncoded is protocol 2's way to write bytes: encode(text, "latin1").
func buildEncoded(m *machine, name string, args []Value) (Value, error) {
	if len(args) > 0 {
		if text, ok := args[0].(string); ok && (len(args) == 1 || latin1(args[1])) {
			if b, ok := fromLatin1(text); ok {
				return b, nil
			}
		}
	}
	return nil, m.badArgs(name, args)
}

func latin1(v Value) bool {
	return v == "latin1" || v == "latin-1"
}

func fromLatin1(text string) (Bytes, bool) {
	out := make(Bytes, 0, len(text))
	for _, r := range text {
		if r > 255 || r == utf8.RuneError {
			return nil, false
		}
		out = append(out, byte(r))
	}
	return out, true
}

func buildBytes(m *machine, name string, args []Value) (Value, error) {
	switch {
	case len(args) == 0:
		return Bytes{}, nil
	case len(args) == 2:
		return buildEncoded(m, name, args)
	case len(args) == 1:
		switch v := args[0].(type) {
		case Bytes:
			return v, nil
		case *List, *Tuple:
			items, _ := Items(v)
			out := make(Bytes, len(items))
			for i, item := range items {
				n, ok := item.(int64)
				if !ok || n < 0 || n > 255 {
					return nil, m.badArgs(name, args)
				}
				out[i] = byte(n)
			}
			return out, nil
		}
	}
	return nil, m.badArgs(name, args)
}

func buildSet(m *machine, name string, args []Value) (Value, error) {
	s := &Set{Frozen: strings.HasSuffix(name, "frozenset"), depth: 1}
	if len(args) == 0 {
		return s, nil
	}
	items, ok := Items(args[0])
	if !ok || len(args) > 1 {
		return nil, m.badArgs(name, args)
	}
	s.Items, s.depth = items, depthAbove(items...)
	return s, nil
}

// buildAttribute is getattr(enumeration, name), as Python 3.11.2 pickles a member.
func buildAttribute(m *machine, name string, args []Value) (Value, error) {
	if len(args) == 2 {
		class, ok := args[0].(Class)
		attribute, also := args[1].(string)
		if ok && also && classes[string(class)] == enum {
			return &Object{Class: string(class), Args: []Value{attribute}, depth: 1}, nil
		}
		return nil, m.errorf("the pickle calls getattr(%s, %.60q), which is allowed only for members of known enumerations; nothing was executed", TypeName(args[0]), TypeName(args[1]))
	}
	return nil, m.badArgs(name, args)
}

func buildArray(m *machine, name string, args []Value) (Value, error) {
	if len(args) == 3 && args[0] == Class("numpy.ndarray") {
		return &Object{Class: "numpy.ndarray", depth: 1}, nil
	}
	return nil, m.badArgs(name, args)
}

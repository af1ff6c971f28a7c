package device

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unsafe"
)

// A Set has bit v where value v of an enumeration is in it.
type Set uint32

// SetOf makes a set of values.
func SetOf[E ~int32](values ...E) (s Set) {
	for _, v := range values {
		s |= 1 << v
	}
	return s
}

// Has reports whether value v is in the set.
func (s Set) Has(v int32) bool { return v >= 0 && v < 32 && s>>v&1 != 0 }

// A tensorField is a tensor of an argument struct and the dtypes that it may have, which
// its field's tag lists:
//
//	value     a dtype the device computes in, one for all tensors of a call so marked
//	eachvalue such a dtype, whatever the others have
//	any       whatever the device moves
//	f32 ...   that one; also f64 in place of f32 where the device computes in f64
type tensorField struct {
	name                  string
	at                    uintptr
	value, eachValue, any bool
	fixed                 Set
}

func tensorFieldOf(f reflect.StructField, at uintptr) tensorField {
	x := tensorField{name: f.Name, at: at}
	for _, tag := range strings.Split(f.Tag.Get("dtype"), "|") {
		switch tag {
		case "value":
			x.value = true
		case "eachvalue":
			x.eachValue = true
		case "any":
			x.any = true
		default:
			d := slices.Index(dtypeNames[:], tag)
			if d < 0 {
				panic(fmt.Sprintf("device: field %s has a dtype %q", f.Name, tag))
			}
			x.fixed |= 1 << d
		}
	}
	return x
}

// A choiceField is an enumeration of an argument struct: Known's field of that index says
// which of its values a device knows.
type choiceField struct {
	name string
	at   uintptr
	set  uintptr // offset in Known
}

func (o *tensorField) in(args unsafe.Pointer) *Tensor { return (*Tensor)(unsafe.Add(args, o.at)) }
func (c *choiceField) in(args unsafe.Pointer) int32   { return *(*int32)(unsafe.Add(args, c.at)) }

var (
	tensorType = reflect.TypeFor[Tensor]()
	knownType  = reflect.TypeFor[Known]()
)

func fieldsOf[A any]() (tensors []tensorField, choices []choiceField) {
	return appendFields(nil, nil, reflect.TypeFor[A](), 0)
}

func appendFields(tensors []tensorField, choices []choiceField, t reflect.Type, at uintptr) ([]tensorField, []choiceField) {
	for i := range t.NumField() {
		f := t.Field(i)
		here := at + f.Offset
		set, enumerated := knownType.FieldByName(f.Type.Name())
		switch {
		case f.Type == tensorType:
			tensors = append(tensors, tensorFieldOf(f, here))
		case f.Type.Kind() == reflect.Struct:
			tensors, choices = appendFields(tensors, choices, f.Type, here)
		case enumerated:
			choices = append(choices, choiceField{f.Type.Name(), here, set.Offset})
		}
	}
	return tensors, choices
}

// Refusal is nil where a device that knows k can do op with these arguments; args points
// to their struct. A Backend asks before all else: what it does not know, it must not
// take for something else.
func (k *Known) Refusal(op Op, args unsafe.Pointer) error {
	if op < 0 || op >= Ops {
		return fmt.Errorf("internal error: op %d does not exist; report this, and include the command line", op)
	}
	for _, c := range ops[op].choices {
		if v := c.in(args); !(*(*Set)(unsafe.Add(unsafe.Pointer(k), c.set))).Has(v) {
			return fmt.Errorf("%s: this device does not support %s %d", op, c.name, v)
		}
	}
	value := valueOf(op, args)
	for i := range ops[op].tensors {
		x := &ops[op].tensors[i]
		t := x.in(args)
		if !t.Given() {
			continue
		}
		if may := k.dtypesOf(x, value); !may.Has(int32(t.DType)) {
			return fmt.Errorf("%s: %s is %v; this device accepts %s", op, x.name, t, may.dtypes())
		}
	}
	return nil
}

// valueOf is the value dtype of a call: that of the first tensor which has no other choice.
func valueOf(op Op, args unsafe.Pointer) DType {
	for i := range ops[op].tensors {
		if x := &ops[op].tensors[i]; x.value && x.fixed == 0 && x.in(args).Given() {
			return x.in(args).DType
		}
	}
	return -1
}

// dtypesOf is what x may be in a call of value dtype `value`.
func (k *Known) dtypesOf(x *tensorField, value DType) Set {
	s := x.fixed
	switch {
	case x.any:
		s |= k.DTypes
	case x.eachValue, x.value && !k.Values.Has(int32(value)):
		s |= k.Values
	case x.value:
		s |= 1 << value
	}
	if x.fixed.Has(int32(F32)) {
		s |= k.Values & (1 << F64)
	}
	return s
}

// dtypes lists a set of them.
func (s Set) dtypes() string {
	var names []string
	for d := range DTypes {
		if s.Has(int32(d)) {
			names = append(names, d.String())
		}
	}
	return strings.Join(names, ", ")
}

// Enumeration is a field in the arguments of a call that has one of a list of values.
type Enumeration struct {
	Name  string // as a Refusal calls it
	Value *int32
}

// Enumerations finds those of a call: kinds, and the dtypes of its tensors.
func (o Op) Enumerations(args unsafe.Pointer) (all []Enumeration) {
	for _, c := range ops[o].choices {
		all = append(all, Enumeration{c.name, (*int32)(unsafe.Add(args, c.at))})
	}
	for i := range ops[o].tensors {
		if x := &ops[o].tensors[i]; x.in(args).Given() {
			all = append(all, Enumeration{x.name, (*int32)(&x.in(args).DType)})
		}
	}
	return all
}

package gguf

import (
	"math"
	"unicode/utf8"

	"monotron/internal/exitcode"
)

// valueType numbers the types of metadata values.
type valueType uint32

const (
	uint8Value valueType = iota
	int8Value
	uint16Value
	int16Value
	uint32Value
	int32Value
	float32Value
	boolValue
	stringValue
	arrayValue
	uint64Value
	int64Value
	float64Value
)

var valueNames = [...]string{"UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32", "FLOAT32", "BOOL", "STRING", "ARRAY", "UINT64", "INT64", "FLOAT64"}

// widths are the bytes of a value; 0: it says its own.
var widths = [...]int64{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}

// noValue is the kind of a key that is not there: it is nothing that can be asked for.
const noValue valueType = 1 << 31

func (t valueType) known() bool { return int(t) < len(valueNames) }

// Value is a metadata value as it is stored. Its methods tell by ok whether the
// value is of the asked kind; any number that fits is good where a number is asked
// for, since writers differ in the widths they choose.
type Value struct {
	kind valueType
	elem valueType // of an array
	n    int64     // elements of an array
	raw  []byte    // a string without its length; else the bytes of the file
}

// Kind names the type, with an array's elements: UINT32, ARRAY of STRING.
func (v Value) Kind() string {
	if v.kind == noValue {
		return "absent"
	}
	if v.kind == arrayValue {
		return "ARRAY of " + valueNames[v.elem]
	}
	return valueNames[v.kind]
}

// String gives a string.
func (v Value) String() (s string, ok bool) { return string(v.raw), v.kind == stringValue }

// Bool gives a boolean.
func (v Value) Bool() (b, ok bool) {
	return v.kind == boolValue && v.raw[0] != 0, v.kind == boolValue
}

// Int gives an integer.
func (v Value) Int() (n int64, ok bool) { return integer(v.kind, v.raw) }

// Float gives any number.
func (v Value) Float() (x float64, ok bool) { return number(v.kind, v.raw) }

func integer(kind valueType, raw []byte) (int64, bool) {
	switch kind {
	case uint8Value:
		return int64(raw[0]), true
	case int8Value:
		return int64(int8(raw[0])), true
	case uint16Value:
		return int64(le.Uint16(raw)), true
	case int16Value:
		return int64(int16(le.Uint16(raw))), true
	case uint32Value:
		return int64(le.Uint32(raw)), true
	case int32Value:
		return int64(int32(le.Uint32(raw))), true
	case int64Value:
		return int64(le.Uint64(raw)), true
	case uint64Value:
		n := le.Uint64(raw)
		return int64(n), n <= math.MaxInt64
	}
	return 0, false
}

func number(kind valueType, raw []byte) (float64, bool) {
	switch kind {
	case float32Value:
		return float64(math.Float32frombits(le.Uint32(raw))), true
	case float64Value:
		return math.Float64frombits(le.Uint64(raw)), true
	}
	n, ok := integer(kind, raw)
	return float64(n), ok
}

// Len is the number of elements of an array, -1 of anything else.
func (v Value) Len() int {
	if v.kind != arrayValue {
		return -1
	}
	return int(v.n)
}

// Strings gives an array of strings.
func (v Value) Strings() (list []string, ok bool) {
	if v.kind != arrayValue || v.elem != stringValue {
		return nil, false
	}
	list = make([]string, 0, v.n)
	for raw := v.raw; len(raw) > 0; {
		n := le.Uint64(raw)
		list = append(list, string(raw[8:8+n]))
		raw = raw[8+n:]
	}
	return list, true
}

// Ints gives an array of integers.
func (v Value) Ints() (list []int64, ok bool) {
	return each(v, func(raw []byte) (int64, bool) { return integer(v.elem, raw) })
}

// Floats gives an array of numbers.
func (v Value) Floats() (list []float64, ok bool) {
	return each(v, func(raw []byte) (float64, bool) { return number(v.elem, raw) })
}

// Bools gives an array of booleans.
func (v Value) Bools() (list []bool, ok bool) {
	return each(v, func(raw []byte) (bool, bool) { return raw[0] != 0, v.elem == boolValue })
}

func each[T any](v Value, read func(raw []byte) (T, bool)) (list []T, ok bool) {
	if v.kind != arrayValue || widths[v.elem] == 0 {
		return nil, false
	}
	width := widths[v.elem]
	list = make([]T, v.n)
	for i := range list {
		if list[i], ok = read(v.raw[int64(i)*width:]); !ok {
			return nil, false
		}
	}
	return list, true
}

// value reads a value of a kind; key is for messages.
func (h *header) value(key string, kind valueType) (v Value, err error) {
	v.kind = kind
	switch {
	case !kind.known():
		return v, h.bad("metadata %q has the type %d; types are 0 to %d", key, kind, len(valueNames)-1)
	case kind == stringValue:
		text, err := h.text("metadata "+quote(key), maxHeader)
		v.raw = []byte(text)
		return v, err
	case kind == arrayValue:
		return h.array(key)
	}
	v.raw, err = h.take(widths[kind], "metadata "+quote(key))
	if err == nil && kind == boolValue && v.raw[0] > 1 {
		err = h.bad("metadata %q is a boolean with the value %d; the value must be 0 or 1", key, v.raw[0])
	}
	return v, err
}

// array reads a list. Its count is believed only as far as the file has bytes for it.
func (h *header) array(key string) (v Value, err error) {
	// Type and number of the elements.
	head, err := h.take(12, "metadata "+quote(key))
	if err != nil {
		return v, err
	}
	v.kind, v.elem = arrayValue, valueType(le.Uint32(head))
	count := le.Uint64(head[4:])
	switch {
	case !v.elem.known():
		return v, h.bad("metadata %q is an array of the type %d; types are 0 to %d", key, v.elem, len(valueNames)-1)
	case v.elem == arrayValue:
		return v, h.bad("metadata %q is an array of arrays, which is not supported", key)
	}
	// Elements of one width are taken at once; strings one by one, each with its length in front.
	width := max(1, widths[v.elem])
	if v.elem == stringValue {
		width = 8 // its length
	}
	if count > uint64(h.left()/width) {
		return v, h.bad("metadata %q declares %d elements of %s, but the file is too short for them", key, count, valueNames[v.elem])
	}
	v.n = int64(count)
	if v.elem != stringValue {
		v.raw, err = h.take(v.n*width, "metadata "+quote(key))
		return v, err
	}
	for range v.n {
		at := len(v.raw)
		v.raw = append(v.raw, make([]byte, 8)...)
		text, err := h.text("an element of metadata "+quote(key), maxHeader)
		if err != nil {
			return v, err
		}
		le.PutUint64(v.raw[at:], uint64(len(text)))
		v.raw = append(v.raw, text...)
	}
	return v, nil
}

// name reads a name of at most `most` bytes: text without control characters.
func (h *header) name(what string, most int64) (string, error) {
	name, err := h.text(what, most)
	if err != nil {
		return "", err
	}
	bad := name == "" || !utf8.ValidString(name)
	for _, c := range name {
		bad = bad || c < ' ' || c == 0x7f
	}
	if bad {
		return "", h.bad("%s is %.60q; it must be printable text", what, name)
	}
	return name, nil
}

// badData is the error of a damaged or hostile file.
func badData(path string, at int64, err error) error {
	return exitcode.Errorf(exitcode.BadData, "%s: byte %d: %w", path, at, err)
}

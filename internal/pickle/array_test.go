package pickle

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// array is a numpy array or scalar.
type array struct {
	DType   string  // numpy's, such as <f4
	Shape   []int64 // nil for a scalar
	Fortran bool    // column-major
	Data    []byte
}

// asArray reads the record of a numpy array or scalar.
func asArray(v Value) (*array, error) {
	o, ok := v.(*Object)
	if !ok {
		return nil, fmt.Errorf("a %s is no numpy array", TypeName(v))
	}
	switch {
	case o.Class == "numpy.ndarray":
		state, ok := Items(o.State)
		if !ok || len(state) != 5 {
			return nil, fmt.Errorf("a numpy array without contents")
		}
		return newArray(state[2], state[1], state[3], state[4])
	case strings.HasSuffix(o.Class, ".multiarray.scalar") && len(o.Args) == 2:
		return newArray(o.Args[0], nil, false, o.Args[1])
	case strings.HasSuffix(o.Class, ".numeric._frombuffer") && len(o.Args) == 4:
		return newArray(o.Args[1], o.Args[2], o.Args[3] == "F", o.Args[0])
	}
	return nil, fmt.Errorf("a %s is no numpy array", o.Class)
}

func newArray(dtype, shape, fortran, data Value) (*array, error) {
	name, err := numpyType(dtype)
	if err != nil {
		return nil, err
	}
	a := &array{DType: name, Fortran: fortran == true}
	if shape != nil {
		dims, ok := Ints(shape)
		if !ok {
			return nil, fmt.Errorf("a numpy array whose shape is a %s", TypeName(shape))
		}
		a.Shape = dims
	}
	raw, ok := data.(Bytes)
	if !ok {
		return nil, fmt.Errorf("a numpy array of %s", TypeName(data))
	}
	want := int64(name[len(name)-1] - '0')
	for _, n := range a.Shape {
		if n < 0 || n > 0 && want > math.MaxInt64/n {
			return nil, fmt.Errorf("a numpy array of shape %v", a.Shape)
		}
		want *= n
	}
	if int64(len(raw)) != want {
		return nil, fmt.Errorf("a numpy array of shape %v and type %s in %d bytes", a.Shape, name, len(raw))
	}
	a.Data = raw
	return a, nil
}

// numpyType is the name of a dtype record, with its byte order.
func numpyType(v Value) (string, error) {
	o, ok := v.(*Object)
	if !ok {
		return "", fmt.Errorf("a numpy type that is a %s", TypeName(v))
	}
	if o.Class == "numpy.dtypes.UInt32DType" {
		return "<u4", nil
	}
	var name string
	if len(o.Args) > 0 {
		name, _ = o.Args[0].(string)
	}
	order := "<"
	if state, ok := Items(o.State); ok && len(state) > 1 {
		if s, ok := state[1].(string); ok && len(s) == 1 && strings.Contains("<>|=", s) {
			order = s
		}
	}
	if len(name) != 2 || !strings.Contains("fiub", name[:1]) || !strings.Contains("1248", name[1:]) {
		return "", fmt.Errorf("numpy type %.20q is not one this reader has", name)
	}
	return order + name, nil
}

// rows are the elements row-major and little-endian.
func (a *array) rows() []byte {
	w := int(a.DType[2] - '0')
	data := bytes.Clone(a.Data)
	if a.DType[0] == '>' {
		swap(data, int64(w))
	}
	if !a.Fortran || len(a.Shape) != 2 {
		return data
	}
	var out []byte
	for r := range int(a.Shape[0]) {
		for col := range int(a.Shape[1]) {
			at := (col*int(a.Shape[0]) + r) * w
			out = append(out, data[at:at+w]...)
		}
	}
	return out
}

// textOf is the contents of a BytesIO, bytes, or str.
func textOf(v Value) (Bytes, bool) {
	switch v := v.(type) {
	case Bytes:
		return v, true
	case string:
		return Bytes(v), true
	case *Object:
		if strings.HasSuffix(v.Class, "io.BytesIO") {
			if state, ok := Items(v.State); ok && len(state) > 0 {
				return textOf(state[0])
			}
			return Bytes{}, v.State == nil
		}
	}
	return nil, false
}

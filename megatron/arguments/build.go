package arguments

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"monotron/megatron/spec"
	"monotron/megatron/training"
)

// build is a Config on its way: flags write into its fields by path, derive
// turns Raw into the final shape.
type build struct {
	training.Config
	Raw raw
}

// raw holds what flags say before it is put together.
type raw struct {
	GroupQueryAttention bool
	QueryGroups         int
	UseRotary           bool
	RopeScaling         bool
	RopeScalingFactor   float64

	Swiglu, SquaredRelu, QuickGeglu bool
	GLU                             string
	BiasGelu                        bool
	Window                          string

	Experts   spec.Experts
	LayerFreq string

	LayersPerVirtual, VirtualStages int
	FSDP                            bool

	BF16, FP16      bool
	LossScaleWindow float64

	RecomputeActivations  bool
	CheckpointActivations bool
	CheckpointMethod      string

	GraphImpl   string
	EnableGraph bool

	ConfigFile        string
	PrintConfig, Help bool
}

// newBuild has every switch that a flag turns off turned on.
func newBuild() *build {
	b := &build{}
	for i := range table {
		if f := &table[i]; strings.HasPrefix(f.To, "!") {
			b.field(f.To[1:]).SetBool(true)
		}
	}
	return b
}

// field finds a field of b by its path, as in Model.NumLayers.
func (b *build) field(path string) reflect.Value {
	v := reflect.ValueOf(b).Elem()
	for _, name := range strings.Split(path, ".") {
		v = v.FieldByName(name)
		if !v.IsValid() {
			panic("arguments: the table names no field of Config: " + path)
		}
	}
	return v
}

// set writes values into the field of f. The values have the flag's count.
func (b *build) set(f *Flag, values []string) error {
	if f.Kind == Switch {
		on := len(values) == 0 || values[0] == "true"
		b.field(strings.TrimPrefix(f.To, "!")).SetBool(on != strings.HasPrefix(f.To, "!"))
		return nil
	}
	return setField(b.field(f.To), values)
}

func setField(field reflect.Value, values []string) error {
	if field.Kind() == reflect.Slice {
		list := reflect.MakeSlice(field.Type(), len(values), len(values))
		for i := range values {
			if err := setField(list.Index(i), values[i:i+1]); err != nil {
				return err
			}
		}
		field.Set(list)
		return nil
	}
	if field.Kind() == reflect.Pointer { // nil: not given
		field.Set(reflect.New(field.Type().Elem()))
		return setField(field.Elem(), values)
	}
	text := values[0]
	switch field.Kind() {
	case reflect.Int, reflect.Int64:
		n, err := parseInt(text)
		field.SetInt(n)
		return err
	case reflect.Float64:
		x, err := parseFloat(text)
		field.SetFloat(x)
		return err
	default:
		field.SetString(text)
		return nil
	}
}

func parseInt(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no whole number", text)
	case n < 0:
		return 0, fmt.Errorf("%d is negative", n)
	case n > 1<<53:
		return 0, fmt.Errorf("%d is too large", n)
	}
	return n, nil
}

func parseFloat(text string) (float64, error) {
	x, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsNaN(x) || math.IsInf(x, 0):
		return 0, fmt.Errorf("%q is no number", text)
	case x < 0:
		return 0, fmt.Errorf("%g is negative", x)
	}
	return x, nil
}

// parsesAs checks values of a flag that has no field.
func parsesAs(kind Kind, values []string) error {
	for _, v := range values {
		var err error
		switch kind {
		case Int, Ints:
			_, err = strconv.ParseInt(v, 10, 64)
		case Float, Floats:
			_, err = strconv.ParseFloat(v, 64)
		}
		if err != nil {
			return fmt.Errorf("%q is no number", v)
		}
	}
	return nil
}

// text is the value of f as it stands in b, written as on a command line.
func (b *build) text(f *Flag) string {
	v := b.field(strings.TrimPrefix(f.To, "!"))
	if f.Kind == Switch {
		return strconv.FormatBool(v.Bool() != strings.HasPrefix(f.To, "!"))
	}
	if v.Kind() != reflect.Slice {
		return scalarText(v)
	}
	parts := make([]string, v.Len())
	for i := range parts {
		parts[i] = scalarText(v.Index(i))
	}
	return strings.Join(parts, " ")
}

func scalarText(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	if v.Kind() == reflect.Float64 {
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	}
	return fmt.Sprint(v.Interface())
}

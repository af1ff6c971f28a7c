package arguments

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"monotron/csrc/device/activations"
	"monotron/megatron/arguments/table"
	"monotron/megatron/config"
	"monotron/megatron/spec"
)

// build is a Config on its way: flags write into its fields by path, derive
// turns Raw into the final shape.
type build struct {
	config.Run
	Raw raw
}

// raw holds what flags say before it is put together.
type raw struct {
	Importance string   // --grpo-importance
	Rewards    []string // --reward

	RankPattern, AlphaPattern []string // NAME=NUMBER

	GroupQueryAttention bool
	QueryGroups         int
	UseRotary           bool
	NoPositionEmbedding bool
	RopeScaling         bool
	RopeScalingFactor   float64
	MultiLatent         bool
	Latent              spec.Latent
	RopeType            string
	AttentionVariant    string
	DeltaFreq           string
	Delta               spec.Delta
	ConvFreq            string
	Full                spec.FullAttention
	MuP                 muP
	ConvTaps            int
	MambaFreq           string
	Mamba               spec.Mamba
	NoMambaConvBias     bool
	HybridPattern       string
	Hybrid              spec.HybridLayers
	IsHybrid            bool
	Spec                []string
	MTP                 spec.MTP

	Activations [activations.Activations]bool
	GLU         string
	BiasGelu    bool
	Window      string
	WindowSkip  string
	NoRope      string
	SoftmaxType string
	NoQKVBias   bool

	Experts   spec.Experts
	LayerFreq string

	LayersPerVirtual, VirtualStages int
	FSDP                            bool
	ZeroStage                       *int // nil: not given

	NoVocabPadding bool

	BF16, FP16      bool
	LossScaleWindow float64

	RecomputeActivations  bool
	CheckpointActivations bool
	CheckpointMethod      string

	GraphImpl string

	LayoutInvariant bool
	Leaves          int
	SequenceLeaves  int
	EnableGraph     bool

	ConfigFile        string
	Preset            string
	PrintConfig, Help bool
}

// newBuild has every switch that a flag turns off turned on.
func newBuild() *build {
	b := &build{}
	for _, f := range table.All() {
		if strings.HasPrefix(f.To, "!") {
			b.field(f.To[1:]).SetBool(true)
		}
	}
	return b
}

// defaulted is a build with every default in place.
func defaulted() *build {
	d := defaultBuild()
	b := *d.build
	for _, f := range d.lists {
		b.setDefault(f)
	}
	return &b
}

// defaultBuild is read once: a search reads thousands of command lines. Lists are each
// build's own.
var defaultBuild = sync.OnceValue(func() (d struct {
	build *build
	lists []*table.Flag
}) {
	d.build = newBuild()
	for _, f := range table.All() {
		switch {
		case f.Class != table.Works || f.Default == "":
		case f.Kind >= table.Ints:
			d.lists = append(d.lists, f)
		default:
			d.build.setDefault(f)
		}
	}
	return d
})

func (b *build) setDefault(f *table.Flag) {
	if err := b.set(f, defaults(f)); err != nil {
		panic(fmt.Sprintf("arguments: default of --%s: %v", f.Name, err))
	}
}

// field finds a field of b by its path, as in Model.NumLayers or Raw.Activations.2.
func (b *build) field(path string) reflect.Value {
	steps, known := fieldSteps.Load(path)
	if !known {
		steps = stepsTo(path)
		fieldSteps.Store(path, steps)
	}
	v := reflect.ValueOf(b).Elem()
	for _, s := range steps.([]fieldStep) {
		if s.field == nil {
			v = v.Index(s.element)
		} else {
			v = v.FieldByIndex(s.field)
		}
	}
	return v
}

// fieldSteps has, by path, []fieldStep: fields are found by name once.
var fieldSteps sync.Map

// fieldStep leads to a field of a struct, or to an element of an array.
type fieldStep struct {
	field   []int // nil: an element
	element int
}

func stepsTo(path string) (steps []fieldStep) {
	t := reflect.TypeFor[build]()
	for _, name := range strings.Split(path, ".") {
		if i, err := strconv.Atoi(name); err == nil {
			steps, t = append(steps, fieldStep{element: i}), t.Elem()
			continue
		}
		f, is := t.FieldByName(name)
		if !is {
			panic("arguments: the table names no field of Config: " + path)
		}
		steps, t = append(steps, fieldStep{field: f.Index}), f.Type
	}
	return steps
}

// set writes values into the field of f. The values have the flag's count.
func (b *build) set(f *table.Flag, values []string) error {
	if f.Kind == table.Switch {
		on := len(values) == 0 || values[0] == "true"
		b.field(strings.TrimPrefix(f.To, "!")).SetBool(on != strings.HasPrefix(f.To, "!"))
		return nil
	}
	return setField(b.field(f.To), values)
}

// setField writes values that have been checked.
func setField(field reflect.Value, values []string) error {
	switch field.Kind() {
	case reflect.Slice:
		list := reflect.MakeSlice(field.Type(), len(values), len(values))
		for i := range values {
			if err := setField(list.Index(i), values[i:i+1]); err != nil {
				return err
			}
		}
		field.Set(list)
	case reflect.Pointer: // nil: not given
		field.Set(reflect.New(field.Type().Elem()))
		return setField(field.Elem(), values)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(values[0], 10, 64)
		field.SetInt(n)
		return err
	case reflect.Float64:
		x, err := strconv.ParseFloat(values[0], 64)
		field.SetFloat(x)
		return err
	default:
		field.SetString(values[0])
	}
	return nil
}

// text is the value of f as it stands in b, written as on a command line.
func (b *build) text(f *table.Flag) string {
	v := b.field(strings.TrimPrefix(f.To, "!"))
	if f.Kind == table.Switch {
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

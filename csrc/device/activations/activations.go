// Package activations is the one table of the MLP's non-linearities: what each is called
// in our files, Megatron's flags and other programs' files, and whether it is gated. A
// new one is a row here and a formula in the activation file of each device; everybody
// else asks the table.
package activations

import (
	"fmt"
	"slices"
	"strings"
)

// Activation is the MLP's non-linearity.
type Activation int32

const (
	GeluTanh Activation = iota
	GeluErf
	SquaredRelu
	Swiglu     // silu(first half)·second half
	QuickGeglu // x·sigmoid(1.702x) of the first half · second half
	Geglu      // gelu_tanh(first half)·second half
	Relu
	Activations
)

// Row is what is said of an activation.
type Row struct {
	Name  string // in our files
	Gated bool   // its input is twice as wide as its output
	// Flag is Megatron's switch that chooses it, without dashes. The two without any are
	// GELU: tanh, or erf with --no-bias-gelu-fusion.
	Flag, Help string
	// HF are its names in Hugging Face's configs, the first of which is written; of a
	// gated one its first half's activation.
	HF []string
}

// Argument is the flag in the arguments that Megatron's checkpoints hold.
func (r *Row) Argument() string { return strings.ReplaceAll(r.Flag, "-", "_") }

var table = [Activations]Row{
	GeluTanh:    {Name: "gelu_tanh", HF: []string{"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}},
	GeluErf:     {Name: "gelu", HF: []string{"gelu"}},
	SquaredRelu: {Name: "squared_relu", HF: []string{"relu2"}, Flag: "squared-relu", Help: "use an MLP with relu(x)^2"},
	Swiglu:      {Name: "swiglu", HF: []string{"silu", "swish"}, Gated: true, Flag: "swiglu", Help: "use a gated MLP: silu(gate)*up"},
	QuickGeglu:  {Name: "quick_geglu", Gated: true, Flag: "quick-geglu", Help: "use a gated MLP: the gate x becomes x*sigmoid(1.702x)"},
	Geglu:       {Name: "geglu", HF: []string{"gelu_pytorch_tanh", "gelu_new", "gelu_fast"}, Gated: true, Flag: "geglu", Help: "use a gated MLP: gelu(gate)*up, with the tanh form of GELU (Gemma)"},
	Relu:        {Name: "relu", HF: []string{"relu"}, Flag: "relu", Help: "use an MLP with relu(x) (OPT)"},
}

// Of is the activation of a name, as our files have it.
func Of(name string) (Activation, error) {
	for a := range Activations {
		if table[a].Name == name {
			return a, nil
		}
	}
	return 0, fmt.Errorf("unknown activation %q", name)
}

// OfHF is the activation that Hugging Face's configs call so, in an MLP that is gated or not.
func OfHF(name string, gated bool) (Activation, error) {
	var known []string
	for a := range Activations {
		if table[a].Gated != gated {
			continue
		}
		if slices.Contains(table[a].HF, name) {
			return a, nil
		}
		known = append(known, table[a].HF...)
	}
	return 0, fmt.Errorf("%q is not supported; the supported activations are %s", name, strings.Join(known, ", "))
}

// WithFlag lists those that a flag chooses.
func WithFlag() (all []Activation) {
	for a := range Activations {
		if table[a].Flag != "" {
			all = append(all, a)
		}
	}
	return all
}

// Row is what is said of a; of an unknown one its number alone.
func (a Activation) Row() *Row {
	if a < 0 || a >= Activations {
		return &Row{Name: fmt.Sprintf("activation(%d)", int32(a))}
	}
	return &table[a]
}

func (a Activation) String() string { return a.Row().Name }

// Gated reports whether a's input is twice as wide as its output.
func (a Activation) Gated() bool { return a.Row().Gated }

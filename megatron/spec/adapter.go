package spec

import "slices"

// Adapter is a low-rank addition to a module of the model; see mpu.Branch. Which modules have
// one, and how they lie in the model's layers, package megatron/checkpoint/peft finds.
type Adapter struct {
	Linear    string // the layer: decoder.layers.0.self_attention.linear_qkv
	Module    string // the module of Hugging Face's model: model.layers.0.self_attn.q_proj
	Out, In   int64  // of the module's weight
	Rank      int
	Scale     float64
	Dropout   float64
	Magnitude bool       // DoRA
	Rows      [][3]int64 // stretches of the module's rows in the layer's: {first there, first here, number}
	Table     bool       `json:",omitempty"` // the module is an embedding: it is indexed by In ids
	Experts   int64      `json:",omitempty"` // of a mixture, each of which has its own A and B; 0: not a mixture
}

// Retrained are weights that are trained next to adapters, and kept with them.
type Retrained struct {
	Family string   // of Hugging Face, by whose names an adapter's files hold them
	Names  []string // of parameters
}

// Has reports whether a parameter is one of them; r may be nil.
func (r *Retrained) Has(name string) bool { return r != nil && slices.Contains(r.Names, name) }

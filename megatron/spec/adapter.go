package spec

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
}

package spec

// Part is a setting of a model that only some families have: its flag, without dashes, and
// the field that holds it. Zero is the model without it.
type Part struct {
	Flag  string
	Field string
	What  string             // what a program without it lacks, in messages
	Word  string             // the flag's value that means true; "": the flag is a switch
	Mine  bool               // Megatron has no such argument
	Of    func(m *Model) any // a pointer to the field: *bool, *int, *float64 or *string
}

// parts are written once: flags, arguments in checkpoints and comparisons of models go by
// this list.
var parts = []Part{
	{Flag: "rope-parameters", Field: "RopeRule", What: "a rule of RoPE frequencies", Mine: true, Of: func(m *Model) any { return &m.RopeRule }},
	{Flag: "window-rope-parameters", Field: "WindowRope", What: "a second rotary table for layers with a window", Mine: true, Of: func(m *Model) any { return &m.WindowRope }},
	{Flag: "position-offset", Field: "PositionOffset", What: "an offset of learned positions", Mine: true, Of: func(m *Model) any { return &m.PositionOffset }},
	{Flag: "latent-norm-epsilon", Field: "LatentEpsilon", What: "a different epsilon in the norms of latent vectors", Mine: true, Of: func(m *Model) any { return &m.LatentEpsilon }},
	{Flag: "parallel-one-norm", Field: "ParallelOneNorm", What: "one norm for attention and MLP in parallel", Mine: true, Of: func(m *Model) any { return &m.ParallelOneNorm }},
	{Flag: "norm-sandwich", Field: "NormSandwich", What: "norms of inputs and outputs of attention and MLP", Mine: true, Of: func(m *Model) any { return &m.NormSandwich }},
	{Flag: "norm-behind-sum", Field: "NormBehindSum", What: "norms after the residual sums", Mine: true, Of: func(m *Model) any { return &m.NormBehindSum }},
	{Flag: "norm-without-bias", Field: "NormNoBias", What: "LayerNorm without bias", Mine: true, Of: func(m *Model) any { return &m.NormNoBias }},
	{Flag: "qk-layernorm-after-rope", Field: "QKNormAfterRope", What: "norms of rotated queries and keys", Mine: true, Of: func(m *Model) any { return &m.QKNormAfterRope }},
	{Flag: "qk-l2-norm", Field: "QKL2Norm", What: "a norm of queries and keys without weights", Of: func(m *Model) any { return &m.QKL2Norm }},
	{Flag: "v-layernorm", Field: "ValueNorm", What: "a norm of values without weights", Mine: true, Of: func(m *Model) any { return &m.ValueNorm }},
	{Flag: "keys-are-values", Field: "KeysAreValues", What: "keys that are also the values", Mine: true, Of: func(m *Model) any { return &m.KeysAreValues }},
	{Flag: "kv-shared-layers", Field: "KVShared", What: "layers that read the keys and values of earlier ones", Mine: true, Of: func(m *Model) any { return &m.KVShared }},
	{Flag: "double-wide-mlp", Field: "WideShared", What: "MLPs that are twice as wide in some layers", Mine: true, Of: func(m *Model) any { return &m.WideShared }},
	{Flag: "per-layer-input-size", Field: "PerLayerInput", What: "per-layer embeddings", Mine: true, Of: func(m *Model) any { return &m.PerLayerInput }},
	{Flag: "moe-parallel-mlp", Field: "ParallelMLP", What: "experts in parallel with an MLP", Mine: true, Of: func(m *Model) any { return &m.ParallelMLP }},
	{Flag: "layer-scalar", Field: "LayerScalar", What: "scaled layers", Mine: true, Of: func(m *Model) any { return &m.LayerScalar }},
	{Flag: "add-proj-bias", Field: "ProjBias", What: "a bias only in the output projection of attention", Mine: true, Of: func(m *Model) any { return &m.ProjBias }},
	{Flag: "disable-proj-bias", Field: "NoProjBias", What: "no bias in the output projection of attention", Mine: true, Of: func(m *Model) any { return &m.NoProjBias }},
	{Flag: "activation-func-clamp-value", Field: "GateLimit", What: "a clamped gate", Of: func(m *Model) any { return &m.GateLimit }},
	{Flag: "glu-linear-offset", Field: "GateOffset", What: "an offset in the gated MLP", Of: func(m *Model) any { return &m.GateOffset }},
	{Flag: "attention-softcap", Field: "ScoreCap", What: "softcapping of attention scores", Mine: true, Of: func(m *Model) any { return &m.ScoreCap }},
	{Flag: "softmax-type", Field: "Sinks", What: "attention sinks", Word: "learnable", Of: func(m *Model) any { return &m.Sinks }},
	{Flag: "attention-output-gate", Field: "OutputGate", What: "an output gate in attention", Of: func(m *Model) any { return &m.OutputGate }},
	{Flag: "attention-chunk-size", Field: "Chunk", What: "attention in chunks", Mine: true, Of: func(m *Model) any { return &m.Chunk }},
	{Flag: "alibi-by-key", Field: "AlibiTable", What: "ALiBi by rounded key positions", Mine: true, Of: func(m *Model) any { return &m.AlibiTable }},
	{Flag: "query-growth", Field: "QueryGrowth", What: "queries scaled by position", Mine: true, Of: func(m *Model) any { return &m.QueryGrowth }},
	{Flag: "query-growth-from", Field: "QueryGrowthFrom", What: "queries scaled by position", Mine: true, Of: func(m *Model) any { return &m.QueryGrowthFrom }},
	{Flag: "query-growth-everywhere", Field: "QueryGrowthAll", What: "queries scaled by position in all layers", Mine: true, Of: func(m *Model) any { return &m.QueryGrowthAll }},
	{Flag: "embedding-multiplier", Field: "EmbeddingScale", What: "scaled embeddings", Mine: true, Of: func(m *Model) any { return &m.EmbeddingScale }},
	{Flag: "residual-multiplier", Field: "ResidualScale", What: "scaled residual branches", Mine: true, Of: func(m *Model) any { return &m.ResidualScale }},
	{Flag: "logit-multiplier", Field: "LogitScale", What: "scaled logits", Mine: true, Of: func(m *Model) any { return &m.LogitScale }},
	{Flag: "logit-softcap", Field: "LogitCap", What: "softcapping of logits", Mine: true, Of: func(m *Model) any { return &m.LogitCap }},
}

// Parts lists the settings that only some families have.
func Parts() []Part { return parts }

// Value is what m has of the part, and whether it has any.
func (p *Part) Value(m *Model) (value any, given bool) {
	switch v := p.Of(m).(type) {
	case *bool:
		return *v, *v
	case *int:
		return *v, *v != 0
	case *float64:
		return *v, *v != 0
	case *string:
		return *v, *v != ""
	}
	return nil, false
}

// partSettings are the parts as settings that Differs compares.
func (m *Model) partSettings() (list []setting) {
	for i := range parts {
		value, _ := parts[i].Value(m)
		list = append(list, setting{parts[i].Field, "--" + parts[i].Flag, value})
	}
	return list
}

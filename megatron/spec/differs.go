package spec

import "fmt"

// setting is one field of a model and its value.
type setting struct {
	field string
	name  string // for who reads it: the flag, where it is one's value
	value any
}

// difference is a field that two models have otherwise.
type difference struct{ field, text string }

// Differs lists, as "--flag value -> value of other", the settings that give weights of the
// same shapes another meaning (Megatron's check_checkpoint_args). Settings that one of the
// two does not use do not count.
func (m *Model) Differs(other *Model) (list []string) {
	for _, d := range m.differences(other) {
		list = append(list, d.text)
	}
	return list
}

// Reshaped lists, in the same way, the settings that give weights other shapes, and those that
// Differs has.
func (m *Model) Reshaped(other *Model) (list []string) {
	all := changes("", m.sizes(), other.sizes())
	if m.Experts != nil && other.Experts != nil {
		all = append(all, changes("Experts.", m.Experts.sizes(), other.Experts.sizes())...)
	}
	for _, d := range append(all, m.differences(other)...) {
		list = append(list, d.text)
	}
	return list
}

func (m *Model) sizes() []setting {
	positions := 0 // that have weights
	if m.Position == PositionLearned {
		positions = m.MaxPositions
	}
	return []setting{
		{"HiddenSize", "--hidden-size", m.HiddenSize},
		{"FFNHiddenSize", "--ffn-hidden-size", m.FFNHiddenSize},
		{"PaddedVocabSize", "padded vocabulary", m.PaddedVocabSize},
		{"MaxPositions", "--max-position-embeddings", positions},
	}
}

func (e *Experts) sizes() []setting {
	return []setting{
		{"FFNHiddenSize", "--moe-ffn-hidden-size", e.FFNHiddenSize},
		{"LatentSize", "--moe-latent-size", e.LatentSize},
		{"SharedFFN", "--moe-shared-expert-intermediate-size", e.SharedFFN},
	}
}

func (m *Model) differences(other *Model) (list []difference) {
	list = changes("", append(m.meaning(), m.partSettings()...), append(other.meaning(), other.partSettings()...))
	if m.Position == PositionRope && other.Position == PositionRope {
		list = append(list, changes("", m.rotary(), other.rotary())...)
	}
	if m.Experts != nil && other.Experts != nil {
		list = append(list, changes("Experts.", m.Experts.meaning(), other.Experts.meaning())...)
	}
	if m.MTP != nil && other.MTP != nil {
		list = append(list, changes("MTP.", m.MTP.meaning(), other.MTP.meaning())...)
	}
	return list
}

func changes(path string, before, after []setting) (list []difference) {
	for i, b := range before {
		if x, y := fmt.Sprint(b.value), fmt.Sprint(after[i].value); x != y {
			list = append(list, difference{path + b.field, fmt.Sprintf("%s %s -> %s", b.name, x, y)})
		}
	}
	return list
}

func (m *Model) meaning() []setting {
	return []setting{
		{"NumLayers", "--num-layers", m.NumLayers},
		{"NumAttentionHeads", "--num-attention-heads", m.NumAttentionHeads},
		{"NumQueryGroups", "--num-query-groups", m.NumQueryGroups},
		{"KVChannels", "--kv-channels", m.KVChannels},
		{"Position", "--position-embedding-type", m.Position},
		{"Normalization", "--normalization", m.Normalization},
		{"NormOnePlus", "--apply-layernorm-1p", m.NormOnePlus},
		{"NormAfter", "--norm-after", m.NormAfter},
		{"ParallelResidual", "--parallel-residual", m.ParallelResidual},
		{"QKNorm", "--qk-layernorm", m.QKNorm},
		{"QKNormFull", "--qk-layernorm-whole", m.QKNormFull},
		{"SoftmaxScale", "--softmax-scale", m.SoftmaxScale},
		{"EmbedNorm", "--embed-layernorm", m.EmbedNorm},
		{"Activation", "activation", m.Activation},
		{"Tied", "tied embeddings and output weights", m.Tied},
		{"LinearBias", "bias of linear layers", m.LinearBias},
		{"QKVBias", "bias of query, key and value", m.QKVBias},
		{"Experts", "a mixture of experts", m.Experts != nil},
		{"Latent", "--multi-latent-attention, its widths and RoPE", m.latent()},
		{"Full", "--full-attention-kv-channels and --full-attention-query-groups", m.full()},
		{"Delta", "--experimental-attention-variant, its widths and layers", m.delta()},
		{"Conv", "--short-conv-freq and --short-conv-kernel-dim", m.conv()},
		{"Mamba", "--mamba-layer-freq, its widths and time-step limits", m.mamba()},
		{"Sublayers", "sublayers of --hybrid-layer-pattern", m.Sublayers},
		{"MTP", "multi-token prediction", m.MTP != nil},
	}
}

// latent is all of latent attention: every field gives weights another shape or meaning.
func (m *Model) latent() string {
	if m.Latent == nil {
		return "none"
	}
	return fmt.Sprintf("%+v", *m.Latent)
}

// delta is all of a gated delta net, as latent.
func (m *Model) delta() string {
	if m.Delta == nil {
		return "none"
	}
	return fmt.Sprintf("%+v", *m.Delta)
}

// full is all of attention without a window, as latent.
func (m *Model) full() string {
	if m.Full == nil {
		return "none"
	}
	return fmt.Sprintf("%+v", *m.Full)
}

// conv is all of short convolutions, as latent.
func (m *Model) conv() string {
	if m.Conv == nil {
		return "none"
	}
	return fmt.Sprintf("%+v", *m.Conv)
}

// mamba is all of state-space scans, as latent.
func (m *Model) mamba() string {
	if m.Mamba == nil {
		return "none"
	}
	return fmt.Sprintf("%+v", *m.Mamba)
}

func (p *MTP) meaning() []setting {
	return []setting{{"Depths", "--mtp-num-layers", p.Depths}, {"Repeated", "--mtp-use-repeated-layer", p.Repeated}}
}

func (m *Model) rotary() []setting {
	scaling := "none"
	if m.RopeScaling != nil {
		scaling = fmt.Sprintf("%+v", *m.RopeScaling)
	}
	return []setting{
		{"RotaryBase", "--rotary-base", m.RotaryBase},
		{"RotaryPercent", "--rotary-percent", m.RotaryPercent},
		{"RotaryInterleaved", "--rotary-interleaved", m.RotaryInterleaved},
		{"RotaryInterpolation", "--rotary-seq-len-interpolation-factor", max(1, m.RotaryInterpolation)},
		{"RopeScaling", "--use-rope-scaling", scaling},
		{"NoRope", "layers by --no-rope-freq", m.NoRope},
	}
}

func (e *Experts) meaning() []setting {
	return []setting{
		{"Num", "--num-experts", e.Num},
		{"SharedGate", "--moe-shared-expert-gate", e.SharedGate},
		{"Layers", "layers by --moe-layer-freq", e.Layers},
		{"TopK", "--moe-router-topk", e.TopK},
		{"ScoreFunction", "--moe-router-score-function", e.ScoreFunction},
		{"PreSoftmax", "--moe-router-pre-softmax", e.PreSoftmax},
		{"ScalingFactor", "--moe-router-topk-scaling-factor", e.ScalingFactor},
		{"NumGroups", "--moe-router-num-groups", e.NumGroups},
		{"GroupTopK", "--moe-router-group-topk", e.GroupTopK},
		{"GroupBest", "--moe-router-group-best", e.BestOfGroup()},
		{"ExpertBias", "--moe-router-enable-expert-bias", e.ExpertBias},
		{"ProbsOnInput", "--moe-apply-probs-on-input", e.ProbsOnInput},
	}
}

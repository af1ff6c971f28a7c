package spec

import "fmt"

// setting is one field of a model and its value.
type setting struct {
	name  string
	value any
}

// Differs lists, as "Name value -> value of other", the settings that give weights of the
// same shapes another meaning (Megatron's check_checkpoint_args). Settings that one of the
// two does not use do not count.
func (m *Model) Differs(other *Model) (list []string) {
	list = changes("", m.meaning(), other.meaning())
	if m.Position == PositionRope && other.Position == PositionRope {
		list = append(list, changes("", m.rotary(), other.rotary())...)
	}
	if m.Experts != nil && other.Experts != nil {
		list = append(list, changes("Experts.", m.Experts.meaning(), other.Experts.meaning())...)
	}
	return list
}

func changes(path string, before, after []setting) (list []string) {
	for i, b := range before {
		if x, y := fmt.Sprint(b.value), fmt.Sprint(after[i].value); x != y {
			list = append(list, fmt.Sprintf("%s%s %s -> %s", path, b.name, x, y))
		}
	}
	return list
}

func (m *Model) meaning() []setting {
	return []setting{
		{"NumLayers", m.NumLayers}, {"NumAttentionHeads", m.NumAttentionHeads}, {"NumQueryGroups", m.NumQueryGroups}, {"KVChannels", m.KVChannels},
		{"Position", m.Position}, {"Normalization", m.Normalization}, {"NormOnePlus", m.NormOnePlus}, {"NormAfter", m.NormAfter}, {"ParallelResidual", m.ParallelResidual}, {"QKNorm", m.QKNorm}, {"QKNormWhole", m.QKNormWhole}, {"SoftmaxScale", m.SoftmaxScale}, {"EmbedNorm", m.EmbedNorm},
		{"Activation", m.Activation}, {"Tied", m.Tied}, {"LinearBias", m.LinearBias}, {"QKVBias", m.QKVBias}, {"Experts", m.Experts != nil},
	}
}

func (m *Model) rotary() []setting {
	scaling := "none"
	if m.RopeScaling != nil {
		scaling = fmt.Sprintf("%+v", *m.RopeScaling)
	}
	return []setting{
		{"RotaryBase", m.RotaryBase}, {"RotaryPercent", m.RotaryPercent}, {"RotaryInterleaved", m.RotaryInterleaved},
		{"RotaryInterpolation", max(1, m.RotaryInterpolation)}, {"RopeScaling", scaling}, {"NoRope", m.NoRope},
	}
}

func (e *Experts) meaning() []setting {
	return []setting{
		{"Num", e.Num}, {"SharedGate", e.SharedGate}, {"Layers", e.Layers}, {"TopK", e.TopK}, {"ScoreFunction", e.ScoreFunction}, {"PreSoftmax", e.PreSoftmax},
		{"ScalingFactor", e.ScalingFactor}, {"NumGroups", e.NumGroups}, {"GroupTopK", e.GroupTopK}, {"ExpertBias", e.ExpertBias}, {"ProbsOnInput", e.ProbsOnInput},
	}
}

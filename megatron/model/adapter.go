package model

import (
	"maps"
	"slices"
	"strings"

	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// adaptable is a linear layer that takes branches.
type adaptable interface {
	Adapt([]mpu.Branch)
}

// magnified is one whose branches may have magnitudes.
type magnified interface {
	StartMagnitudes(*device.Device) error
}

// linears are a layer's linear layers that adapters may be on, by the ends of their names.
func (l *layer) linears() map[string]adaptable {
	all := map[string]adaptable{}
	switch a := l.attention.(type) {
	case *attention:
		all["self_attention.linear_qkv"], all["self_attention.linear_proj"] = a.qkv, a.proj
	case *mamba:
		all["mixer.in_proj"], all["mixer.out_proj"] = a.in, a.proj
	}
	if l.second == nil {
		return all
	}
	switch m := l.second.sublayer.(type) {
	case *mlp:
		all["mlp.linear_fc1"], all["mlp.linear_fc2"] = m.fc1, m.fc2
	case *mixture:
		all["mlp.experts.linear_fc1"], all["mlp.experts.linear_fc2"] = m.experts.fc1, m.experts.fc2
		if m.shared != nil {
			all["mlp.shared_experts.linear_fc1"], all["mlp.shared_experts.linear_fc2"] = m.shared.mlp.fc1, m.shared.mlp.fc2
		}
	}
	return all
}

// adapt gives the layer the model's adapters that are on it.
func (l *layer) adapt(m *spec.Model) {
	if len(m.Adapters) == 0 {
		return
	}
	for end, linear := range l.linears() {
		if branches := branchesOn(m, l.name()+"."+end); branches != nil {
			linear.Adapt(branches)
		}
	}
}

// branchesOn are the model's adapters on one of its layers.
func branchesOn(m *spec.Model, linear string) (branches []mpu.Branch) {
	for _, a := range m.Adapters {
		if a.Linear == linear {
			branches = append(branches, mpu.Branch{Name: a.Module, Out: a.Out, In: a.In, Rank: int64(a.Rank), Scale: a.Scale, Dropout: a.Dropout, Magnitude: a.Magnitude, Rows: a.Rows})
		}
	}
	return branches
}

// IsAdapter reports whether a parameter of this name is an adapter's.
func IsAdapter(name string) bool { return strings.HasPrefix(name, mpu.AdapterPrefix) }

// IsLinearWeight reports whether a parameter of this name is the weight of a linear layer, which
// --quantize-base rounds.
func IsLinearWeight(name string) bool {
	return strings.Contains(name, ".linear_") && strings.HasSuffix(name, ".weight") && !IsAdapter(name)
}

// StartMagnitudes sets the magnitudes of new DoRA adapters from the weights, after these are
// loaded. All ranks of a model call it together.
func (s *Stage) StartMagnitudes() error {
	for _, l := range s.layers {
		linears := l.linears()
		for _, end := range slices.Sorted(maps.Keys(linears)) {
			if l, is := linears[end].(magnified); is {
				if err := l.StartMagnitudes(s.device); err != nil {
					return err
				}
			}
		}
	}
	return s.device.Err()
}

// dropBranches has the pass drop the inputs of adapters by the masks of their rows' positions.
func (p *Pass) dropBranches() {
	if !p.Step.Given() || p.Drop != nil {
		return
	}
	p.Drop = func(back bool, dst, src Tensor, name string, rate float64, row, column int64) {
		at, n := int64(0), src.Shape[0]
		for _, span := range p.Positions {
			from, to := max(row, at), min(row+n, at+span.N*p.Batch)
			if from < to {
				drop := p.dropout(rate, name, span.From+(from-at)/p.Batch)
				drop.Channel = int32(column)
				out, in := dst.Slice(0, from-row, to-from), src.Slice(0, from-row, to-from)
				if back {
					p.D.DropoutBackward(device.DropoutBackwardArgs{DX: out, DY: in, Drop: drop})
				} else {
					p.D.DropoutAdd(device.DropoutAddArgs{Out: out, X: in, Drop: drop})
				}
			}
			at += span.N * p.Batch
		}
	}
}

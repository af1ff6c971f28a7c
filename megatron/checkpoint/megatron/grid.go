package megatron

import (
	"fmt"
	"strings"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
)

// Rank is a position in the grid of model-parallel ranks.
type Rank struct{ TP, PP, EP int }

// Folder is the rank's name in a checkpoint of the older format.
func (r Rank) Folder(l checkpoint.Layout) string {
	name := fmt.Sprintf("%s%02d", checkpoint.RankPrefix, r.TP)
	if l.PP > 1 {
		name += fmt.Sprintf("_%03d", r.PP)
	}
	if l.EP > 1 {
		name += fmt.Sprintf("_%03d", r.EP)
	}
	return name
}

// ETP is the rank's position among those that share an expert.
func (r Rank) ETP(l checkpoint.Layout) int { return r.TP % max(1, l.ETP) }

// Ranks lists the grid, tp fastest, then ep, then pp. With fewer expert-tensor
// ranks than tensor ranks it has holes.
func Ranks(l checkpoint.Layout) []Rank {
	l = l.Complete()
	var list []Rank
	for pp := range l.PP {
		seen := map[Rank]bool{}
		for r := range max(l.TP, l.ETP*l.EP) * l.TP {
			k := Rank{r % l.TP, pp, r / l.ETP % l.EP}
			if !seen[k] {
				seen[k] = true
				list = append(list, k)
			}
		}
	}
	return list
}

// Check refuses layouts that Megatron could not have.
func Check(m *spec.Model, l checkpoint.Layout) error {
	l = l.Complete()
	bad := func(format string, args ...any) error {
		return exitcode.Errorf(exitcode.Usage, "layout tp %d, pp %d, vp %d, ep %d: %s", l.TP, l.PP, l.VP, l.EP, fmt.Sprintf(format, args...))
	}
	const most = 1 << 12
	if min(l.TP, l.PP, l.VP, l.EP, l.ETP) < 1 || max(l.TP, l.PP, l.VP, l.EP) > most {
		return bad("sizes must be from 1 to %d", most)
	}
	if l.ETP > l.TP || l.TP%l.ETP != 0 {
		return bad("--expert-tensor-parallel-size %d must divide --tensor-model-parallel-size", l.ETP)
	}
	if l.VP > 1 && l.PP == 1 {
		return bad("several chunks per stage need --pipeline-model-parallel-size above 1")
	}
	if text := m.UncutHeads(l.TP); text != "" {
		return exitcode.Errorf(exitcode.Usage, "%s", text)
	}
	if l.EP > 1 && m.Experts == nil {
		return bad("--expert-model-parallel-size is %d, but the model has no experts", l.EP)
	}
	if l.EP > 1 && m.Experts.Num%l.EP != 0 {
		return bad("--expert-model-parallel-size %d does not divide the %d experts", l.EP, m.Experts.Num)
	}
	if _, err := Stages(m, l); err != nil {
		return bad("%v", err)
	}
	return nil
}

// Stages lists the layers of every chunk: [stage][chunk][]layer.
func Stages(m *spec.Model, l checkpoint.Layout) ([][][]int, error) {
	l = l.Complete()
	counts, err := stageCounts(m.NumLayers, l)
	if err != nil {
		return nil, err
	}
	stages := make([][][]int, l.PP)
	layer := 0
	for chunk := range l.VP {
		for stage := range l.PP {
			n := counts[stage] / l.VP
			list := make([]int, n)
			for i := range list {
				list[i] = layer
				layer++
			}
			stages[stage] = append(stages[stage], list)
			if chunk == 0 && counts[stage]%l.VP != 0 {
				return nil, fmt.Errorf("the %d layers of stage %d cannot be divided evenly into %d chunks", counts[stage], stage, l.VP)
			}
		}
	}
	return stages, nil
}

// stageCounts is how many layers each stage has.
func stageCounts(layers int, l checkpoint.Layout) ([]int, error) {
	// Stages that the run counted itself.
	if len(l.StageLayers) > 0 {
		sum := 0
		for _, n := range l.StageLayers {
			sum += n
		}
		if len(l.StageLayers) != l.PP || sum != layers {
			return nil, fmt.Errorf("the numbers of layers per stage are %v; there must be %d numbers with the sum %d", l.StageLayers, l.PP, layers)
		}
		return l.StageLayers, nil
	}
	// The ends may be fixed; the rest divides evenly.
	even, rest := l.PP, layers
	for _, n := range []int{l.FirstStage, l.LastStage} {
		if n > 0 {
			even--
			rest -= n
		}
	}
	if even < 0 || rest < 0 {
		return nil, fmt.Errorf("the first stage has %d layers and the last has %d, too many for %d layers on %d stages", l.FirstStage, l.LastStage, layers, l.PP)
	}
	if even > 0 && rest%even != 0 || even == 0 && rest != 0 {
		return nil, fmt.Errorf("%d layers cannot be divided evenly among %d stages", rest, even)
	}
	counts := make([]int, l.PP)
	for i := range counts {
		switch {
		case i == 0 && l.FirstStage > 0:
			counts[i] = l.FirstStage
		case i == l.PP-1 && l.LastStage > 0:
			counts[i] = l.LastStage
		default:
			counts[i] = rest / even
		}
	}
	return counts, nil
}

// Local is a tensor as one rank has it.
type Local struct {
	Key  string // in the rank's state dict, local layer and expert numbers
	Name string // ours
	Cut
	Expert bool
	Linear bool // it has an _extra_state behind its weight or bias
}

// isLinear reports a tensor of a linear layer by its name in its layer.
func isLinear(rest string) bool {
	return strings.Contains(rest, "linear_") || strings.HasSuffix(rest, ".eh_proj.weight") || rest == checkpoint.OutputLayer
}

// SharesTable reports whether the first and last pipeline stage have a copy each of the word
// embedding, whose gradients they sum.
func SharesTable(m *spec.Model, l checkpoint.Layout) bool {
	return (m.Tied || m.MTP != nil) && l.PP > 1
}

// Locals lists a chunk's tensors of one rank in the order of Megatron's state
// dict (local layer spec). A tied output layer is there, under its own key, on a
// last stage that is not the first.
func Locals(m *spec.Model, l checkpoint.Layout, r Rank, chunk int, layers []int) ([]Local, error) {
	l = l.Complete()
	first := r.PP == 0 && chunk == 0
	last := r.PP == l.PP-1 && chunk == l.VP-1
	// Global layer numbers to those of the chunk, by which Megatron names them.
	local := map[int]int{}
	for i, layer := range layers {
		local[layer] = i
	}
	var list []Local
	// An expert's tensors are cut over expert-tensor-parallel ranks, and are only on the rank that has the expert.
	add := func(t checkpoint.Tensor, key string) error {
		parts, rank := l.TP, r.TP
		k := Split(t.Name)
		if k.Expert != None {
			parts, rank = l.ETP, r.ETP(l)
			share := m.Experts.Num / l.EP
			if k.Expert/share != r.EP {
				return nil
			}
			key = k.Name(local[k.Layer], k.Expert%share)
		}
		c, err := CutOver(m, t.Name, t.Shape, parts, rank)
		if err != nil {
			return err
		}
		list = append(list, Local{Key: key, Name: t.Name, Cut: c, Expert: k.Expert != None, Linear: isLinear(k.Rest)})
		return nil
	}
	// Layers of this chunk; the embedding at the first stage; the rest at the last.
	for _, t := range checkpoint.Expected(m) {
		k := Split(t.Name)
		key, here := t.Name, false
		switch {
		case k.Layer != None:
			var n int
			if n, here = local[k.Layer]; here {
				key = checkpoint.LayerName(n) + k.Rest
			}
		case strings.HasPrefix(t.Name, "embedding."):
			here = first || last && m.MTP != nil // which has a copy
		default:
			here = last
		}
		if here {
			if err := add(t, key); err != nil {
				return nil, err
			}
		}
	}
	// The copy of the tied table.
	if last && m.Tied && l.PP > 1 {
		words := checkpoint.Expected(m)[0]
		c, err := CutOver(m, words.Name, words.Shape, l.TP, r.TP)
		if err != nil {
			return nil, err
		}
		list = append(list, Local{Key: checkpoint.OutputLayer, Name: words.Name, Cut: c, Linear: true})
	}
	return list, nil
}

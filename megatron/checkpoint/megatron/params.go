package megatron

import (
	"fmt"
	"slices"

	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
)

// Group is a parameter group of Megatron's optimizer: matrices decay, vectors
// do not; experts have groups of their own where they are spread over ranks.
type Group struct {
	Decay, Expert bool
	Params        []Local
}

// Trained are the tensors that an optimizer has states of.
func Trained(params []Local) []Local {
	return slices.DeleteFunc(slices.Clone(params), func(p Local) bool { return checkpoint.IsBuffer(p.Name) })
}

// Groups sorts parameters, in state dict order, into the groups of one
// optimizer, or of two (dense, experts) where apart is set.
func Groups(params []Local, apart bool) [][]Group {
	pick := func(decay, expert bool) Group {
		g := Group{Decay: decay, Expert: expert}
		for _, p := range params {
			if (len(p.Shape) > 1) == decay && (p.Expert && apart) == expert && !checkpoint.IsBuffer(p.Name) {
				g.Params = append(g.Params, p)
			}
		}
		return g
	}
	var optimizers [][]Group
	for _, expert := range []bool{false, true} {
		var groups []Group
		for _, decay := range []bool{true, false} {
			if g := pick(decay, expert); len(g.Params) > 0 {
				groups = append(groups, g)
			}
		}
		if len(groups) > 0 {
			optimizers = append(optimizers, groups)
		}
	}
	return optimizers
}

// MatchGroups finds the parameters of each stored group: param_groups' own
// flags say which they are, their `params` how many.
func MatchGroups(stored []pickle.Value, params []Local) ([]Group, error) {
	rates := false // some group has the embeddings' own learning rate
	for _, v := range stored {
		d, _ := v.(*pickle.Dict)
		rates = rates || Args{d}.Bool("is_decoupled_lr")
	}
	var groups []Group
	for i, v := range stored {
		d, ok := v.(*pickle.Dict)
		if !ok {
			return nil, fmt.Errorf("param_groups.%d has type %s; it must be a dict", i, pickle.TypeName(v))
		}
		a := Args{d}
		g := Group{Decay: a.Float("wd_mult", 1) != 0, Expert: a.Bool("is_expert_parallel")}
		for _, p := range params {
			if (len(p.Shape) > 1) == g.Decay && !checkpoint.IsBuffer(p.Name) && (!rates || checkpoint.IsVocabulary(p.Name) == a.Bool("is_decoupled_lr")) {
				g.Params = append(g.Params, p)
			}
		}
		groups = append(groups, g)
		if ids, ok := d.Get("params"); ok {
			list, _ := pickle.Items(ids)
			if len(list) != len(g.Params) {
				return nil, fmt.Errorf("param_groups.%d has %d parameters, but the tensors of the model require %d", i, len(list), len(g.Params))
			}
		}
	}
	return groups, nil
}

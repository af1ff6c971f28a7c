package hf

import (
	"cmp"
	"strings"
)

// Module is a linear layer or table of a family's model, with its position in ours.
type Module struct {
	Name    string // model.layers.0.self_attn.q_proj
	Linear  string // decoder.layers.0.self_attention.linear_qkv
	Out, In int64
	Table   bool       // of token ids: an embedding or the output layer
	Conv1D  bool       // its weight is stored [in, out]
	Rows    [][3]int64 // stretches of its rows in ours: {first of ours, first of its, number}
	// Of a mixture, whose weights transformers keeps as one parameter [experts, Out, In] of this name; 0: not
	// a mixture.
	Experts int64
}

// Modules lists the modules with a weight of two dimensions, in the order of the model. The experts of a mixture
// are two: what transformers has as mlp.experts.gate_up_proj and mlp.experts.down_proj, whatever files call them.
func (mp *Mapping) Modules() (list []Module) {
	for i := range mp.rules {
		r := &mp.rules[i]
		if before, after, is := strings.Cut(r.global, ".local_experts."); is {
			if name, first := strings.CutPrefix(after, "0."); first && strings.HasSuffix(name, ".weight") {
				list = append(list, mp.mixture(r, before+"."+strings.TrimSuffix(name, ".weight")))
			}
			continue
		}
		linear, is := strings.CutSuffix(r.global, ".weight")
		if !is || len(r.shape) != 2 || strings.Contains(r.global, "position_embeddings") {
			continue
		}
		modules := make([]Module, len(r.sources))
		for s, src := range r.sources {
			modules[s] = Module{Name: mp.moduleName(strings.TrimSuffix(src.Name, ".weight")), Linear: linear, In: r.shape[1], Table: r.vocab, Conv1D: src.Transposed}
		}
		if r.vocab {
			modules[0].Out, modules[0].Rows = r.shape[0], [][3]int64{{0, 0, r.shape[0]}}
		} else {
			r.stretches(modules)
		}
		list = append(list, modules...)
	}
	return list
}

// stretches gives each source the position of its rows.
func (r *rule) stretches(modules []Module) {
	for row := range r.shape[0] {
		s, theirs := r.at(row)
		m := &modules[s]
		m.Out++
		if n := len(m.Rows); n > 0 && m.Rows[n-1][0]+m.Rows[n-1][2] == row && m.Rows[n-1][1]+m.Rows[n-1][2] == theirs {
			m.Rows[n-1][2]++
		} else {
			m.Rows = append(m.Rows, [3]int64{row, theirs, 1})
		}
	}
}

// moduleName is what transformers' class calls a module that files call so.
func (mp *Mapping) moduleName(name string) string {
	if rest, is := strings.CutPrefix(name, mp.row.prefix[0]); is {
		return mp.row.prefix[1] + rest
	}
	return name
}

// StoredName is what files call a module of transformers' class.
func (mp *Mapping) StoredName(module string) string {
	if rest, is := strings.CutPrefix(module, mp.row.prefix[1]); is {
		return mp.row.prefix[0] + rest
	}
	return module
}

// mixture is the module of all experts of a layer, from the rule of the first one's weight.
func (mp *Mapping) mixture(r *rule, linear string) Module {
	layer := strings.Join(strings.SplitN(r.sources[0].Name, ".", 4)[:3], ".") // model.layers.0
	name, up := mp.moduleName(layer)+"."+cmp.Or(mp.row.mixture.class, "mlp.")+"experts.", "gate_up_proj"
	if !mp.Model.Gated() {
		up = "up_proj"
	}
	if strings.HasSuffix(linear, "linear_fc1") {
		name += up
	} else {
		name += "down_proj"
	}
	return Module{Name: name, Linear: linear, Out: r.shape[0], In: r.shape[1], Rows: [][3]int64{{0, 0, r.shape[0]}}, Conv1D: r.sources[0].Transposed, Experts: int64(mp.Model.Experts.Num)}
}

// SourcesOf lists their tensors that make one of Megatron's.
func (mp *Mapping) SourcesOf(global string) []Source {
	if i, ok := mp.byGlobal[global]; ok {
		return mp.rules[i].sources
	}
	return nil
}

package hf

import "strings"

// Module is a linear layer or table of a family's model, with its place in ours.
type Module struct {
	Name    string // model.layers.0.self_attn.q_proj
	Linear  string // decoder.layers.0.self_attention.linear_qkv
	Out, In int64
	Table   bool       // of token ids: an embedding or the output layer
	Conv1D  bool       // its weight is stored [in, out]
	Rows    [][3]int64 // stretches of its rows in ours: {first of ours, first of its, number}
}

// Modules lists the modules with a weight of two dimensions, in the order of the model.
func (mp *Mapping) Modules() (list []Module) {
	for i := range mp.rules {
		r := &mp.rules[i]
		linear, is := strings.CutSuffix(r.global, ".weight")
		if !is || len(r.shape) != 2 || strings.Contains(r.global, "position_embeddings") {
			continue
		}
		modules := make([]Module, len(r.sources))
		for s, src := range r.sources {
			modules[s] = Module{Name: strings.TrimSuffix(src.Name, ".weight"), Linear: linear, In: r.shape[1], Table: r.vocab, Conv1D: src.Transposed}
		}
		if !r.vocab {
			r.stretches(modules)
		}
		list = append(list, modules...)
	}
	return list
}

// stretches tells each source where its rows lie.
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

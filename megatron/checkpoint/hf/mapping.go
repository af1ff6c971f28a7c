package hf

import (
	"errors"
	"fmt"
	"slices"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
)

// Source is one of their tensors: Shape is as stored; a Transposed one is
// [in, out], as GPT-2's Conv1D keeps its weights.
type Source struct {
	Name       string
	Shape      []int64
	Transposed bool
}

// rule makes one Megatron tensor of rows of sources and back.
type rule struct {
	global  string
	shape   []int64
	sources []Source
	row     func(r int64) (source int, row int64) // where row r of the global tensor lies; nil: the only source's
	vocab   bool                                  // rows are token ids: padding may follow
}

// Mapping is the list of rules of one model.
type Mapping struct {
	Family string
	Model  *spec.Model

	row      *row
	rules    []rule
	byGlobal map[string]int
	byHF     map[string][2]int  // rule, source
	slabs    map[string][]int64 // shapes of tensors that hold several sources, name[0], name[1], ..
}

// NewMapping lists how m's tensors lie in files of family. The names are those
// of the full model (`transformer.h.0..`, `model.layers.0..`).
func NewMapping(m *spec.Model, family string) (*Mapping, error) {
	family = canonical(family)
	if err := Expresses(family, m); err != nil {
		return nil, err
	}
	mp := newMapping(m, family)
	if mp.row.names != nil {
		mp.row.names(mp)
	} else {
		mp.llama()
	}
	if !m.Tied {
		mp.embedding("output_layer.weight", headName(family))
	}
	return mp, nil
}

func newMapping(m *spec.Model, family string) *Mapping {
	return &Mapping{Family: family, Model: m, row: rows[family], byGlobal: map[string]int{}, byHF: map[string][2]int{}, slabs: map[string][]int64{}}
}

// headName is a family's output layer, which a tied model may store all the same.
func headName(family string) string {
	if family == GPTNeoX {
		return "embed_out.weight"
	}
	return "lm_head.weight"
}

// NewLinearMapping is the mapping of GPT-2 with every weight [out, in], as
// nanoGPT and llm.c keep them under the same names.
func NewLinearMapping(m *spec.Model) (*Mapping, error) {
	if err := Expresses(GPT2, m); err != nil {
		var lack *inexpressible
		if errors.As(err, &lack) {
			lack.holder = "the GPT-2 of nanoGPT and llm.c"
		}
		return nil, err
	}
	mp := newMapping(m, GPT2)
	mp.gpt2(false)
	if !m.Tied {
		mp.embedding("output_layer.weight", "lm_head.weight")
	}
	return mp, nil
}

func (mp *Mapping) add(r rule) {
	for i, s := range r.sources {
		mp.byHF[s.Name] = [2]int{len(mp.rules), i}
	}
	mp.byGlobal[r.global] = len(mp.rules)
	mp.rules = append(mp.rules, r)
}

// same adds a tensor that both sides store alike.
func (mp *Mapping) same(global, name string, shape ...int) {
	mp.add(rule{global: global, shape: dims(shape), sources: []Source{{Name: name, Shape: dims(shape)}}})
}

func (mp *Mapping) embedding(global, name string) {
	shape := dims([]int{mp.Model.VocabSize, mp.Model.HiddenSize})
	mp.add(rule{global: global, shape: shape, sources: []Source{{Name: name, Shape: shape}}, vocab: true})
}

// norm adds weight and, for LayerNorm, bias.
func (mp *Mapping) norm(global, name string) {
	mp.same(global+".weight", name+".weight", mp.Model.HiddenSize)
	if mp.Model.HasNormBias() {
		mp.same(global+".bias", name+".bias", mp.Model.HiddenSize)
	}
}

// attention adds separate projections of queries, keys and values, and the output projection of that name.
func (mp *Mapping) attention(ours, theirs, proj string, bias, projBias bool) {
	m := mp.Model
	h, q, kv := m.HiddenSize, m.NumAttentionHeads*m.KVChannels, m.NumQueryGroups*m.KVChannels
	mp.linear(ours+"linear_qkv", []string{theirs + "q_proj", theirs + "k_proj", theirs + "v_proj"}, []int{q, kv, kv}, h, bias, false, grouped(m))
	mp.linear(ours+"linear_proj", []string{theirs + proj}, []int{h}, q, projBias, false, nil)
}

// conv adds a filter of so many taps for each channel, which Hugging Face keeps as [channels, 1, taps].
func (mp *Mapping) conv(global, name string, channels, taps int) {
	mp.add(rule{global: global, shape: dims([]int{channels, taps}), sources: []Source{{Name: name, Shape: dims([]int{channels, 1, taps})}}})
}

// linear adds a weight [out, in] of stacked sources with the given rows, and
// its bias.
func (mp *Mapping) linear(global string, names []string, rows []int, in int, bias, transposed bool, row func(int64) (int, int64)) {
	out := 0
	weight := rule{global: global + ".weight", row: row}
	vector := rule{global: global + ".bias", row: row}
	for i, name := range names {
		out += rows[i]
		shape := []int{rows[i], in}
		if transposed {
			shape = []int{in, rows[i]}
		}
		weight.sources = append(weight.sources, Source{name + ".weight", dims(shape), transposed})
		vector.sources = append(vector.sources, Source{Name: name + ".bias", Shape: dims(rows[i : i+1])})
	}
	weight.shape, vector.shape = dims([]int{out, in}), dims([]int{out})
	mp.add(weight)
	if bias {
		mp.add(vector)
	}
}

// conv1D are GPT-2's weights as transformers stores them, [in, out].
func (mp *Mapping) conv1D() { mp.gpt2(true) }

func (mp *Mapping) gpt2(transposed bool) {
	m := mp.Model
	h, ffn := m.HiddenSize, m.FFNHiddenSize
	mp.embedding("embedding.word_embeddings.weight", "transformer.wte.weight")
	mp.same("embedding.position_embeddings.weight", "transformer.wpe.weight", m.MaxPositions, h)
	for i := range m.NumLayers {
		ours, theirs := fmt.Sprintf("decoder.layers.%d.", i), fmt.Sprintf("transformer.h.%d.", i)
		mp.norm(ours+"input_layernorm", theirs+"ln_1")
		mp.linear(ours+"self_attention.linear_qkv", []string{theirs + "attn.c_attn"}, []int{3 * h}, h, true, transposed, thirds(h, m.KVChannels))
		mp.linear(ours+"self_attention.linear_proj", []string{theirs + "attn.c_proj"}, []int{h}, h, true, transposed, nil)
		mp.norm(ours+"pre_mlp_layernorm", theirs+"ln_2")
		mp.linear(ours+"mlp.linear_fc1", []string{theirs + "mlp.c_fc"}, []int{ffn}, h, true, transposed, nil)
		mp.linear(ours+"mlp.linear_fc2", []string{theirs + "mlp.c_proj"}, []int{h}, ffn, true, transposed, nil)
	}
	mp.norm("decoder.final_layernorm", "transformer.ln_f")
}

func (mp *Mapping) gptNeo() {
	m := mp.Model
	h, ffn := m.HiddenSize, m.FFNHiddenSize
	mp.embedding("embedding.word_embeddings.weight", "transformer.wte.weight")
	mp.same("embedding.position_embeddings.weight", "transformer.wpe.weight", m.MaxPositions, h)
	for i := range m.NumLayers {
		ours, theirs := fmt.Sprintf("decoder.layers.%d.", i), fmt.Sprintf("transformer.h.%d.", i)
		mp.norm(ours+"input_layernorm", theirs+"ln_1")
		mp.attention(ours+"self_attention.", theirs+"attn.attention.", "out_proj", false, true)
		mp.norm(ours+"pre_mlp_layernorm", theirs+"ln_2")
		mp.linear(ours+"mlp.linear_fc1", []string{theirs + "mlp.c_fc"}, []int{ffn}, h, true, false, nil)
		mp.linear(ours+"mlp.linear_fc2", []string{theirs + "mlp.c_proj"}, []int{h}, ffn, true, false, nil)
	}
	mp.norm("decoder.final_layernorm", "transformer.ln_f")
}

func (mp *Mapping) gptNeoX() {
	m := mp.Model
	h, ffn := m.HiddenSize, m.FFNHiddenSize
	mp.embedding("embedding.word_embeddings.weight", "gpt_neox.embed_in.weight")
	for i := range m.NumLayers {
		ours, theirs := fmt.Sprintf("decoder.layers.%d.", i), fmt.Sprintf("gpt_neox.layers.%d.", i)
		mp.norm(ours+"input_layernorm", theirs+"input_layernorm")
		mp.linear(ours+"self_attention.linear_qkv", []string{theirs + "attention.query_key_value"}, []int{3 * h}, h, m.QKVBias, false, nil)
		mp.linear(ours+"self_attention.linear_proj", []string{theirs + "attention.dense"}, []int{h}, h, m.HasProjBias(), false, nil)
		mp.norm(ours+"pre_mlp_layernorm", theirs+"post_attention_layernorm")
		mp.linear(ours+"mlp.linear_fc1", []string{theirs + "mlp.dense_h_to_4h"}, []int{ffn}, h, true, false, nil)
		mp.linear(ours+"mlp.linear_fc2", []string{theirs + "mlp.dense_4h_to_h"}, []int{h}, ffn, true, false, nil)
	}
	mp.norm("decoder.final_layernorm", "gpt_neox.final_layer_norm")
}

func (mp *Mapping) bloom() {
	m := mp.Model
	h := m.HiddenSize
	mp.embedding("embedding.word_embeddings.weight", "transformer.word_embeddings.weight")
	mp.norm("embedding.layernorm", "transformer.word_embeddings_layernorm")
	for i := range m.NumLayers {
		ours, theirs := fmt.Sprintf("decoder.layers.%d.", i), fmt.Sprintf("transformer.h.%d.", i)
		mp.norm(ours+"input_layernorm", theirs+"input_layernorm")
		mp.linear(ours+"self_attention.linear_qkv", []string{theirs + "self_attention.query_key_value"}, []int{3 * h}, h, true, false, nil)
		mp.linear(ours+"self_attention.linear_proj", []string{theirs + "self_attention.dense"}, []int{h}, h, true, false, nil)
		mp.norm(ours+"pre_mlp_layernorm", theirs+"post_attention_layernorm")
		mp.linear(ours+"mlp.linear_fc1", []string{theirs + "mlp.dense_h_to_4h"}, []int{4 * h}, h, true, false, nil)
		mp.linear(ours+"mlp.linear_fc2", []string{theirs + "mlp.dense_4h_to_h"}, []int{h}, 4*h, true, false, nil)
	}
	mp.norm("decoder.final_layernorm", "transformer.ln_f")
}

func (mp *Mapping) llama() {
	m := mp.Model
	h := m.HiddenSize
	mp.embedding("embedding.word_embeddings.weight", "model.embed_tokens.weight")
	if m.PerLayerInput > 0 {
		mp.gemma4Inputs()
	}
	for i := range m.AllLayers() {
		of := m.AttentionOf(i)
		hn := of.KVChannels
		q, kv := of.NumAttentionHeads*hn, of.NumQueryGroups*hn
		ours, theirs := m.LayerName(i)+".", fmt.Sprintf("model.layers.%d.", i)
		switch ahead := i - m.NumLayers; {
		case ahead < 0:
		case mp.row.ownAhead:
			theirs = fmt.Sprintf("mtp.layers.%d.", ahead)
			mp.ownAhead(spec.MTPName(ahead) + ".")
		default:
			mp.ahead(spec.MTPName(ahead)+".", theirs)
		}
		mp.layerNorms(ours, theirs)
		// Attention, or the mixer that replaces it.
		attention := theirs + "self_attn."
		switch {
		case m.DeltaAt(i):
			mp.deltaNet(ours+"self_attention.", theirs+"linear_attn.")
		case m.Latent != nil:
			mp.latent(ours+"self_attention.", attention)
			q = m.NumAttentionHeads * m.Latent.VDim
		case mp.Family == Phi3:
			mp.linear(ours+"self_attention.linear_qkv", []string{attention + "qkv_proj"}, []int{q + 2*kv}, h, m.QKVBias, false, fused(m))
		default:
			names, rows := []string{attention + "q_proj", attention + "k_proj", attention + "v_proj"}, []int{of.QKVRows() - of.KeyValues()*kv, kv, kv}
			n := 1 + of.KeyValues()
			mp.linear(ours+"self_attention.linear_qkv", names[:n], rows[:n], h, m.QKVBias, false, grouped(of))
		}
		if m.QKNorm && !m.DeltaAt(i) {
			wideQ, wideK := of.QKNormWidths()
			q, k := "q_norm", "k_norm"
			if mp.Family == Hunyuan {
				q, k = "query_layernorm", "key_layernorm"
			}
			mp.same(ours+"self_attention.q_layernorm.weight", attention+q+".weight", wideQ)
			if of.KeyValues() > 0 {
				mp.same(ours+"self_attention.k_layernorm.weight", attention+k+".weight", wideK)
			}
		}
		if !m.DeltaAt(i) {
			mp.linear(ours+"self_attention.linear_proj", []string{attention + "o_proj"}, []int{h}, q, m.HasProjBias(), false, nil)
		}
		// Further tensors of a layer.
		if m.LayerScalar {
			mp.same(ours+"layer_scalar", theirs+"layer_scalar", 1)
		}
		if m.Sinks {
			mp.same(ours+checkpoint.SinksName, attention+"sinks", m.NumAttentionHeads)
		}
		if m.PerLayerInput > 0 {
			mp.gemma4Own(ours, theirs)
		}
		// The mixture, the MLP, or both.
		if m.MixtureAt(i) {
			switch mp.Family {
			case GPTOSS:
				mp.fusedExperts(ours+"mlp.", theirs+"mlp.")
			case Gemma4:
				mp.gemma4Mixture(ours+"mlp.", theirs)
			default:
				mp.experts(ours+"mlp.", theirs)
			}
			if !m.ParallelMLP {
				continue
			}
		}
		block := "mlp."
		if mp.Family == Llama4 {
			block = "feed_forward."
		}
		mp.llamaMLP(ours+"mlp.", theirs+block, m.MLPOf(i).FFNHiddenSize)
	}
	mp.norm("decoder.final_layernorm", "model.norm")
}

// ahead adds what a layer of multi-token prediction has around it. The columns of the projection
// are [embedding; state] on both sides.
func (mp *Mapping) ahead(ours, theirs string) {
	mp.norm(ours+"enorm", theirs+"enorm")
	mp.norm(ours+"hnorm", theirs+"hnorm")
	mp.same(ours+"eh_proj.weight", theirs+"eh_proj.weight", mp.Model.HiddenSize, 2*mp.Model.HiddenSize)
	mp.norm(ours+"final_layernorm", theirs+"shared_head.norm")
}

// llamaMLP adds a gated MLP in two matrices or one, or Starcoder 2's plain one.
func (mp *Mapping) llamaMLP(ours, theirs string, ffn int) {
	h, bias, down := mp.Model.HiddenSize, mp.Model.LinearBias, "down_proj"
	switch mp.Family {
	case Starcoder2:
		mp.linear(ours+"linear_fc1", []string{theirs + "c_fc"}, []int{ffn}, h, bias, false, nil)
		down = "c_proj"
	case Phi3:
		mp.linear(ours+"linear_fc1", []string{theirs + "gate_up_proj"}, []int{2 * ffn}, h, bias, false, nil)
	default:
		mp.linear(ours+"linear_fc1", []string{theirs + "gate_proj", theirs + "up_proj"}, []int{ffn, ffn}, h, bias, false, stacked(ffn))
	}
	mp.linear(ours+"linear_fc2", []string{theirs + down}, []int{h}, ffn, bias, false, nil)
}

// layerNorms adds the two norms of a layer: Llama's post_attention_layernorm is the MLP's,
// OLMo 2's the one that follows attention.
func (mp *Mapping) layerNorms(ours, theirs string) {
	m := mp.Model
	switch {
	case m.NormSandwich:
		mp.norm(ours+"input_layernorm", theirs+"input_layernorm")
		mp.norm(ours+"post_self_attn_layernorm", theirs+"post_attention_layernorm")
		mp.norm(ours+"pre_mlp_layernorm", theirs+"pre_feedforward_layernorm")
		mp.norm(ours+"post_mlp_layernorm", theirs+"post_feedforward_layernorm")
		return
	case m.ParallelOneNorm:
		mp.norm(ours+"input_layernorm", theirs+"input_layernorm")
		return
	case m.NormAfter:
		mp.norm(ours+"post_self_attn_layernorm", theirs+"post_attention_layernorm")
		mp.norm(ours+"post_mlp_layernorm", theirs+"post_feedforward_layernorm")
		return
	}
	mp.norm(ours+"input_layernorm", theirs+"input_layernorm")
	mp.norm(ours+"pre_mlp_layernorm", theirs+"post_attention_layernorm")
}

// layerNames are the beginnings of a layer's names, ours and theirs.
func layerNames(layer int, form string) (ours, theirs string) {
	return checkpoint.LayerName(layer), fmt.Sprintf(form, layer)
}

// thirds: theirs is [Q | K | V], ours per head [q | k | v].
func thirds(hidden, head int) func(int64) (int, int64) {
	h, hn := int64(hidden), int64(head)
	return func(r int64) (int, int64) {
		third := r / hn % 3
		return 0, third*h + r/(3*hn)*hn + r%hn
	}
}

// grouped: theirs are q, k and v; ours per query group [its q heads | k | v]. With gates theirs has
// per query head [q | gate], ours per group [its q heads | their gates | k | v].
func grouped(m *spec.Model) func(int64) (int, int64) {
	if m.OutputGate {
		return groupedWithGates(m)
	}
	hn := int64(m.KVChannels)
	queries := int64(m.NumAttentionHeads/m.NumQueryGroups) * hn // rows of q in a group
	block := queries + int64(m.KeyValues())*hn
	return func(r int64) (int, int64) {
		group, at := r/block, r%block
		switch {
		case at < queries:
			return 0, group*queries + at
		case at < queries+hn:
			return 1, group*hn + at - queries
		}
		return 2, group*hn + at - queries - hn
	}
}

// groupedWithGates is grouped of a model with OutputGate.
func groupedWithGates(m *spec.Model) func(int64) (int, int64) {
	hn, heads := int64(m.KVChannels), int64(m.NumAttentionHeads/m.NumQueryGroups)
	return func(r int64) (int, int64) {
		group, head, at := r/((2*heads+2)*hn), r%((2*heads+2)*hn)/hn, r%hn
		switch {
		case head < heads:
			return 0, (group*heads+head)*2*hn + at
		case head < 2*heads:
			return 0, (group*heads+head-heads)*2*hn + hn + at
		case head == 2*heads:
			return 1, group*hn + at
		}
		return 2, group*hn + at
	}
}

// fused: theirs is [Q | K | V] of groups; ours as grouped.
func fused(m *spec.Model) func(int64) (int, int64) {
	apart, hn := grouped(m), int64(m.KVChannels)
	q, kv := int64(m.NumAttentionHeads)*hn, int64(m.NumQueryGroups)*hn
	return func(r int64) (int, int64) {
		part, row := apart(r)
		return 0, []int64{0, q, q + kv}[part] + row
	}
}

// stacked: sources of equal height, one below the other.
func stacked(rows int) func(int64) (int, int64) {
	return func(r int64) (int, int64) { return int(r / int64(rows)), r % int64(rows) }
}

// below: sources of the given heights, one below the other.
func below(rows []int) func(int64) (int, int64) {
	return func(r int64) (int, int64) {
		for i, n := range rows[:len(rows)-1] {
			if r < int64(n) {
				return i, r
			}
			r -= int64(n)
		}
		return len(rows) - 1, r
	}
}

func dims(shape []int) []int64 {
	out := make([]int64, len(shape))
	for i, n := range shape {
		out[i] = int64(n)
	}
	return out
}

// GlobalNames lists Megatron's names in the order of the model.
func (mp *Mapping) GlobalNames() []string {
	names := make([]string, len(mp.rules))
	for i, r := range mp.rules {
		names[i] = r.global
	}
	return names
}

// GlobalShape is the shape of a Megatron tensor; embeddings have VocabSize
// rows, no padding. nil for an unknown name.
func (mp *Mapping) GlobalShape(global string) []int64 {
	if i, ok := mp.byGlobal[global]; ok {
		return slices.Clone(mp.rules[i].shape)
	}
	return nil
}

// GlobalOf is the Megatron tensor that one of theirs is part of, and its shape.
func (mp *Mapping) GlobalOf(name string) (global string, shape []int64) {
	at, ok := mp.byHF[name]
	if !ok {
		return "", nil
	}
	return mp.rules[at[0]].global, slices.Clone(mp.rules[at[0]].shape)
}

// Sources lists all of their tensors, in the order of the model.
func (mp *Mapping) Sources() []Source {
	var list []Source
	for _, r := range mp.rules {
		list = append(list, r.sources...)
	}
	return list
}

// ToGlobal makes a Megatron tensor out of theirs, which read returns with their
// shapes as stored: number by number, for `verify case` and tests. Checkpoints go by
// Gather (bytes.go).
func ToGlobal[T float32 | float64](mp *Mapping, global string, read func(name string) ([]T, []int64, error)) ([]T, error) {
	i, ok := mp.byGlobal[global]
	if !ok {
		return nil, exitcode.Errorf(exitcode.Internal, "internal error: %s models have no tensor %q; report this, and include the command line", mp.Family, global)
	}
	r := mp.rules[i]
	// Their tensors.
	parts := make([][]T, len(r.sources))
	for s, src := range r.sources {
		values, shape, err := readSlab(src.Name, read)
		if err != nil {
			return nil, err
		}
		if !slices.Equal(shape, src.Shape) {
			return nil, exitcode.Errorf(exitcode.BadData, "tensor %q has the shape %v, but the model requires the shape %v", src.Name, shape, src.Shape)
		}
		parts[s] = values
	}
	// Row by row to ours.
	rows, width := r.size()
	out := make([]T, rows*width)
	for row := range rows {
		s, from := r.at(row)
		start, step := r.sources[s].line(from, width)
		for c := range width {
			out[row*width+c] = parts[s][start+c*step]
		}
	}
	return out, nil
}

// ToHF makes one of their tensors, and its shape, out of Megatron's, which get
// returns uncut. Where get gives an embedding with padded rows, so is the result.
func ToHF[T float32 | float64](mp *Mapping, name string, get func(global string) ([]T, error)) ([]T, []int64, error) {
	// A tensor of all experts is made expert by expert.
	if shape := mp.slabs[name]; shape != nil {
		var all []T
		for j := range shape[0] {
			values, _, err := ToHF(mp, slabName(name, int(j)), get)
			if err != nil {
				return nil, nil, err
			}
			all = append(all, values...)
		}
		return all, slices.Clone(shape), nil
	}
	at, ok := mp.byHF[name]
	if !ok {
		return nil, nil, exitcode.Errorf(exitcode.Internal, "internal error: %s models have no tensor %q; report this, and include the command line", mp.Family, name)
	}
	r, s := mp.rules[at[0]], at[1]
	values, err := get(r.global)
	if err != nil {
		return nil, nil, err
	}
	// Shape, with the rows of padding that the values have.
	src := r.sources[s]
	rows, width := r.size()
	shape := slices.Clone(src.Shape)
	if r.vocab && width > 0 && int64(len(values)) == int64(mp.Model.PaddedVocabSize)*width {
		rows = int64(mp.Model.PaddedVocabSize)
		shape[0] = rows
	}
	if int64(len(values)) != rows*width {
		return nil, nil, exitcode.Errorf(exitcode.Internal, "internal error: tensor %q has %d elements, but its shape %v needs %d; report this, and include the command line", r.global, len(values), r.shape, rows*width)
	}
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	// Of the rows of ours those that this tensor has.
	out := make([]T, n)
	for row := range rows {
		owner, to := r.at(row)
		if owner != s {
			continue
		}
		start, step := src.line(to, width)
		for c := range width {
			out[start+c*step] = values[row*width+c]
		}
	}
	return out, shape, nil
}

// size is the global tensor's as rows and width.
func (r *rule) size() (rows, width int64) {
	if len(r.shape) == 1 {
		return r.shape[0], 1
	}
	return r.shape[0], r.shape[1]
}

func (r *rule) at(row int64) (source int, sourceRow int64) {
	if r.row == nil {
		return 0, row
	}
	return r.row(row)
}

// line is the position of an output row's elements in the stored tensor.
func (s *Source) line(row, width int64) (start, step int64) {
	if s.Transposed {
		return row, s.Shape[1]
	}
	return row * width, 1
}

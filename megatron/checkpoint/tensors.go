package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"monotron/megatron/spec"
)

// Names of the tensors whose rows are token ids.
const (
	WordEmbeddings = "embedding.word_embeddings.weight"
	OutputLayer    = "output_layer.weight"
)

// IsVocabulary reports, without prefix, a tensor whose rows are token ids.
func IsVocabulary(name string) bool { return name == WordEmbeddings || name == OutputLayer }

// IsBuffer reports, without prefix, a tensor of the model that is not trained: it has no
// optimizer state.
func IsBuffer(name string) bool {
	return strings.HasSuffix(name, ".router.expert_bias") || strings.HasSuffix(name, ".router.qb_beta") || strings.HasSuffix(name, ".layer_scalar")
}

// LayerName is the prefix of a layer's tensors.
func LayerName(layer int) string { return fmt.Sprintf("decoder.layers.%d.", layer) }

// ExpertName is the prefix of an expert's tensors; both numbers are global.
func ExpertName(layer, expert int) string {
	return fmt.Sprintf("%smlp.experts.local_experts.%d.", LayerName(layer), expert)
}

// SinksName is what a layer's sinks are called in it.
const SinksName = "self_attention.core_attention.softmax_offset"

// LayerNorms are the names of a layer's norms of the residual stream's width: attention's,
// and the MLP's, where it has these.
func LayerNorms(m *spec.Model, layer int) (norms [2][]string) {
	if !m.NormAfter && !m.NormBehindSum {
		norms[0] = append(norms[0], "input_layernorm")
		if !m.ParallelOneNorm {
			norms[1] = append(norms[1], "pre_mlp_layernorm")
		}
	}
	if m.NormAfter || m.NormSandwich || m.NormBehindSum {
		norms[0] = append(norms[0], "post_self_attn_layernorm")
		if !m.NormBehindSum || layer < m.NumLayers-1 { // the last one's is the final norm
			norms[1] = append(norms[1], "post_mlp_layernorm")
		}
	}
	if !m.MixerAt(layer) {
		norms[0] = nil
	}
	if !m.MLPAt(layer) {
		norms[1] = nil
	}
	return norms
}

// Expected lists the parameters of a model, without prefix or type, in the
// order of Megatron's state dict, the vocabulary without padding.
func Expected(m *spec.Model) []Tensor {
	l := &lister{m: m}
	h := int64(m.HiddenSize)
	l.add(WordEmbeddings, int64(m.VocabSize), h)
	if n := int64(m.NumLayers * m.PerLayerInput); n > 0 {
		l.add("embedding.per_layer_embeddings.weight", int64(m.VocabSize), n)
		l.add("embedding.per_layer_projection.weight", n, h)
		l.norm("embedding.per_layer_layernorm", int64(m.PerLayerInput))
	}
	if m.Position == spec.PositionLearned {
		l.add("embedding.position_embeddings.weight", int64(m.PositionRows()), h)
	}
	if m.EmbedNorm {
		l.norm("embedding.layernorm", h)
	}
	for i := range m.NumLayers {
		l.layer(i)
	}
	l.norm("decoder.final_layernorm", h)
	for i := range m.MTPLayers() {
		l.ahead(i)
	}
	if !m.Tied {
		l.add(OutputLayer, int64(m.VocabSize), h)
	}
	return l.list
}

// ParallelMLPNorms are those of a mixture in parallel with an MLP, below "mlp.": of the MLP's output, of
// the experts' input and output, and of the router's input.
var ParallelMLPNorms = []string{"post_mlp_layernorm", "pre_experts_layernorm", "post_experts_layernorm", "router.layernorm"}

type lister struct {
	m    *spec.Model
	list []Tensor
}

func (l *lister) add(name string, shape ...int64) {
	l.list = append(l.list, Tensor{Name: name, Shape: shape})
}

func (l *lister) norm(name string, width int64) {
	l.add(name+".weight", width)
	if l.m.HasNormBias() {
		l.add(name+".bias", width)
	}
}

func (l *lister) linear(name string, out, in int, bias bool) {
	l.add(name+".weight", int64(out), int64(in))
	if bias {
		l.add(name+".bias", int64(out))
	}
}

// ahead lists a layer of multi-token prediction.
func (l *lister) ahead(i int) {
	h, name := l.m.HiddenSize, spec.MTPName(i)
	l.norm(name+".enorm", int64(h))
	l.norm(name+".hnorm", int64(h))
	l.linear(name+".eh_proj", h, 2*h, false)
	l.layer(l.m.NumLayers + i)
	l.norm(name+".final_layernorm", int64(h))
}

func (l *lister) layer(i int) {
	m, name := l.m, l.m.LayerName(i)+"."
	h := m.HiddenSize
	// The order is that in which Megatron makes parameters: flat buffers depend on it.
	norms := LayerNorms(m, i)
	if m.LayerScalar {
		l.add(name+"layer_scalar", 1)
	}
	for _, n := range norms[0] {
		l.norm(name+n, int64(h))
	}
	switch {
	case !m.MixerAt(i):
	case m.DeltaAt(i):
		l.delta(name + "self_attention.")
	case m.ConvAt(i):
		l.shortConv(name + "self_attention.")
	case m.MambaAt(i):
		l.mamba(name + "mixer.")
	case m.Latent != nil:
		l.latent(name + "self_attention.")
	default:
		l.attention(name+"self_attention.", m.AttentionOf(i))
	}
	if m.Sinks && m.AttendsAt(i) {
		l.add(name+SinksName, int64(m.NumAttentionHeads))
	}
	for _, n := range norms[1] {
		l.norm(name+n, int64(h))
	}
	if m.PerLayerInput > 0 {
		l.linear(name+"per_layer_gate", m.PerLayerInput, h, false)
		l.linear(name+"per_layer_projection", h, m.PerLayerInput, false)
		l.norm(name+"post_per_layer_layernorm", int64(h))
	}
	// The MLP, a mixture, or both.
	if m.MixtureAt(i) {
		l.experts(name + "mlp.")
	}
	if m.MLPAt(i) && (!m.MixtureAt(i) || m.ParallelMLP) {
		of := m.MLPOf(i)
		l.linear(name+"mlp.linear_fc1", of.FC1Rows(), h, m.LinearBias)
		l.linear(name+"mlp.linear_fc2", h, of.FFNHiddenSize, m.LinearBias)
	}
}

// attention lists that of a layer, as m has it there.
func (l *lister) attention(name string, m *spec.Model) {
	h := m.HiddenSize
	l.linear(name+"linear_proj", h, m.NumAttentionHeads*m.KVChannels, m.HasProjBias())
	l.linear(name+"linear_qkv", m.QKVRows(), h, m.QKVBias)
	if m.QKNorm {
		q, k := m.QKNormWidths()
		l.norm(name+"q_layernorm", int64(q))
		if m.KeyValues() > 0 {
			l.norm(name+"k_layernorm", int64(k))
		}
	}
}

// latent lists multi-latent attention.
func (l *lister) latent(name string) {
	m, h, a := l.m, l.m.HiddenSize, l.m.Latent
	heads := m.NumAttentionHeads
	l.linear(name+"linear_proj", h, heads*a.VDim, m.LinearBias)
	if a.QRank > 0 {
		l.linear(name+"linear_q_down_proj", a.QRank, h, false)
		l.linear(name+"linear_q_up_proj", heads*a.HeadDim(), a.QRank, false)
	} else {
		l.linear(name+"linear_q_proj", heads*a.HeadDim(), h, false)
	}
	l.linear(name+"linear_kv_down_proj", a.KVRank+a.RopeDim, h, false)
	l.linear(name+"linear_kv_up_proj", heads*(a.QKDim+a.VDim), a.KVRank, false)
	if a.Norms && a.QRank > 0 {
		l.norm(name+"q_layernorm", int64(a.QRank))
	}
	if a.Norms {
		l.norm(name+"kv_layernorm", int64(a.KVRank))
	}
}

// delta lists a gated delta net.
func (l *lister) delta(name string) {
	d, h := l.m.Delta, l.m.HiddenSize
	l.add(name+"conv1d.weight", int64(d.Channels()), int64(d.Taps))
	l.add(name+"dt_bias", int64(d.ValueHeads))
	l.add(name+"A_log", int64(d.ValueHeads))
	l.linear(name+"in_proj", d.Rows(), h, false)
	l.add(name+"out_norm.weight", int64(d.ValueDim))
	l.linear(name+"out_proj", h, d.ValueHeads*d.ValueDim, l.m.LinearBias)
}

// shortConv lists a short convolution with its projections.
func (l *lister) shortConv(name string) {
	h := l.m.HiddenSize
	l.add(name+"conv1d.weight", int64(h), int64(l.m.Conv.Taps))
	l.linear(name+"in_proj", 3*h, h, false)
	l.linear(name+"out_proj", h, h, false)
}

// mamba lists a state-space scan with its projections.
func (l *lister) mamba(name string) {
	s, h := l.m.Mamba, l.m.HiddenSize
	l.add(name+"dt_bias", int64(s.Heads))
	l.add(name+"A_log", int64(s.Heads))
	l.add(name+"D", int64(s.Heads))
	l.linear(name+"in_proj", s.Rows(), h, false)
	l.add(name+"conv1d.weight", int64(s.Channels()), int64(s.Taps))
	if s.ConvBias {
		l.add(name+"conv1d.bias", int64(s.Channels()))
	}
	l.add(name+"norm.weight", int64(s.Inner()))
	l.linear(name+"out_proj", h, s.Inner(), false)
}

func (l *lister) experts(name string) {
	m, e, h := l.m, l.m.Experts, l.m.HiddenSize
	wide := 1
	if m.Gated() {
		wide = 2
	}
	// Router: [experts, h], and what its options add for each expert.
	l.linear(name+"router", e.Num, h, m.LinearBias)
	if m.ParallelMLP {
		for _, norm := range ParallelMLPNorms {
			l.norm(name+norm, int64(h))
		}
		l.add(name+"router.expert_scale", int64(e.Num))
	}
	if e.ExpertBias {
		l.add(name+"router.expert_bias", int64(e.Num))
	}
	if slices.Contains(e.Balancing, spec.Quantiles) {
		l.add(name+"router.qb_beta", int64(e.Num))
	}
	if e.LatentSize > 0 {
		l.linear(name+"fc1_latent_proj", e.LatentSize, h, false)
		l.linear(name+"fc2_latent_proj", h, e.LatentSize, false)
	}
	// Experts: fc1 [ffn, their width], or [2·ffn, their width] with a gate; fc2 [their width, ffn].
	for j := range e.Num {
		expert := fmt.Sprintf("%sexperts.local_experts.%d.", name, j)
		l.linear(expert+"linear_fc1", wide*e.FFNHiddenSize, m.ExpertWidth(), m.LinearBias)
		l.linear(expert+"linear_fc2", m.ExpertWidth(), e.FFNHiddenSize, m.LinearBias)
	}
	if e.SharedFFN > 0 {
		if e.SharedGate {
			l.add(name+"shared_experts.gate_weight", 1, int64(h))
		}
		l.linear(name+"shared_experts.linear_fc1", wide*e.SharedFFN, h, false)
		l.linear(name+"shared_experts.linear_fc2", h, e.SharedFFN, false)
	}
}

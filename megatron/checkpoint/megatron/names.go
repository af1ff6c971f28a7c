package megatron

import (
	"slices"
	"strconv"
	"strings"

	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
)

// Key is a tensor's name in a Megatron state dict, taken apart.
type Key struct {
	Layer  int    // local or global, -1: outside the layers, -2: stacked over all layers
	Expert int    // local, -1: none, -2: stacked over all experts
	Rest   string // behind layer and expert, in our names
}

// Parts of names.
const (
	layersPrefix  = "decoder.layers."
	expertsPrefix = "mlp.experts."
	Stacked       = -2
	None          = -1
)

// norms in Transformer Engine's places, as ours.
var norms = strings.NewReplacer("self_attention.linear_qkv.layer_norm_", "input_layernorm.", "mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm.",
	"self_attention.linear_q_up_proj.layer_norm_", "self_attention.q_layernorm.", "self_attention.linear_kv_up_proj.layer_norm_", "self_attention.kv_layernorm.")

// ParseKey reads a name; ok is false for what is no parameter (_extra_state).
func ParseKey(name string) (k Key, ok bool) {
	name = strings.TrimPrefix(name, "module.")
	if strings.HasSuffix(name, "_extra_state") || strings.Contains(name, "._extra_state") {
		return k, false
	}
	k = Key{Layer: None, Expert: None, Rest: name}
	rest, layered := strings.CutPrefix(name, layersPrefix)
	if !layered {
		return k, true
	}
	k.Layer = Stacked
	if number, behind, found := strings.Cut(rest, "."); found {
		if n, err := strconv.ParseUint(number, 10, 31); err == nil {
			k.Layer, rest = int(n), behind
		}
	}
	k.Rest = rest
	if inner, expert := strings.CutPrefix(rest, expertsPrefix); expert {
		k.parseExpert(inner)
	} else if !strings.HasPrefix(rest, "mlp.shared_experts.") {
		k.Rest = norms.Replace(rest)
	}
	return k, true
}

// parseExpert reads the three ways to name experts: one by one, grouped
// (weight0, weight1, ..) and stacked.
func (k *Key) parseExpert(rest string) {
	if one, ok := strings.CutPrefix(rest, "local_experts."); ok {
		number, behind, _ := strings.Cut(one, ".")
		if n, err := strconv.ParseUint(number, 10, 31); err == nil {
			k.Expert, k.Rest = int(n), behind
		}
		return
	}
	if all, ok := strings.CutPrefix(rest, "experts."); ok {
		k.Expert, k.Rest = Stacked, all
		return
	}
	for _, kind := range []string{".weight", ".bias"} {
		if i := strings.Index(rest, kind); i >= 0 {
			if n, err := strconv.ParseUint(rest[i+len(kind):], 10, 31); err == nil {
				k.Expert, k.Rest = int(n), rest[:i]+kind
			}
		}
	}
}

// Name is our name of the tensor, for a global layer and expert.
func (k Key) Name(layer, expert int) string {
	switch {
	case k.Layer == None:
		return k.Rest
	case k.Expert == None:
		return checkpoint.LayerName(layer) + k.Rest
	}
	return checkpoint.ExpertName(layer, expert) + k.Rest
}

// Split takes one of our names apart; layer and expert are None where it has none.
func Split(name string) (layer, expert int, rest string) {
	k, _ := ParseKey(name)
	return k.Layer, k.Expert, k.Rest
}

// DistKey is the name under which torch_dist stacks a tensor over layers (and
// experts): with Transformer Engine's places of the norms, also where they are
// modules of their own.
func DistKey(m *spec.Model, layer, expert int, rest string) string {
	switch {
	case layer == None:
		return rest
	case expert != None:
		return layersPrefix + expertsPrefix + "experts." + rest
	}
	return layersPrefix + fusedNorms(m).Replace(rest)
}

// StateDict lists a chunk's parameters as the state dict of a run of these arguments has
// them, from those of the local layer spec: with Transformer Engine the norms before QKV and
// before a dense MLP are parts of these, and with grouped products an expert is a number
// behind the name.
func (a Args) StateDict(m *spec.Model, list []Local) []Local {
	if a.Text("transformer_impl", "local") == "local" {
		return list
	}
	list = a.MadeOrder(slices.Clone(list))
	for i := range list {
		p := &list[i]
		k, _ := ParseKey(p.Key)
		switch layer, _, rest := Split(p.Name); {
		case layer == None:
		case p.Expert:
			if a.Bool("moe_grouped_gemm") {
				p.Key = checkpoint.LayerName(k.Layer) + expertsPrefix + rest + strconv.Itoa(k.Expert)
			}
		case strings.HasPrefix(rest, "pre_mlp_layernorm.") && m.Experts != nil && m.Experts.Layers[layer]:
		default:
			p.Key = checkpoint.LayerName(k.Layer) + fusedNorms(m).Replace(rest)
		}
	}
	return list
}

var (
	distNorms   = strings.NewReplacer("input_layernorm.", "self_attention.linear_qkv.layer_norm_", "pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_")
	latentNorms = strings.NewReplacer("self_attention.q_layernorm.", "self_attention.linear_q_up_proj.layer_norm_",
		"self_attention.kv_layernorm.", "self_attention.linear_kv_up_proj.layer_norm_", "pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_")
)

// fusedNorms are the norms that Transformer Engine makes parts of the layers behind them: with
// multi-latent attention those of the latents, not the one before the down projections.
func fusedNorms(m *spec.Model) *strings.Replacer {
	if m.Latent != nil {
		return latentNorms
	}
	return distNorms
}

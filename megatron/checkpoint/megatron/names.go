package megatron

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
)

// Key is a tensor's name in a Megatron state dict, taken apart.
type Key struct {
	Layer  int    // of the decoder: local or global, -1: outside its layers, -2: stacked over all layers
	Ahead  int    // which layer of multi-token prediction's own layer it is in; -1: in none
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

// norms by Transformer Engine's names, as ours.
var norms = strings.NewReplacer("self_attention.linear_qkv.layer_norm_", "input_layernorm.", "mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm.",
	"self_attention.linear_q_up_proj.layer_norm_", "self_attention.q_layernorm.", "self_attention.linear_kv_up_proj.layer_norm_", "self_attention.kv_layernorm.")

// ParseKey reads a name; ok is false for anything but a parameter (_extra_state).
func ParseKey(name string) (k Key, ok bool) {
	name = strings.TrimPrefix(name, "module.")
	if strings.HasSuffix(name, "_extra_state") || strings.Contains(name, "._extra_state") {
		return k, false
	}
	k = Key{Layer: None, Ahead: None, Expert: None, Rest: name}
	// A layer by its number, or all layers of one kind together.
	rest, layered := strings.CutPrefix(name, layersPrefix)
	switch {
	case layered:
		k.Layer = Stacked
		if number, behind, found := strings.Cut(rest, "."); found {
			if n, err := strconv.ParseUint(number, 10, 31); err == nil {
				k.Layer, rest = int(n), behind
			}
		}
	default:
		if rest, layered = k.parseAhead(name); !layered {
			return k, true
		}
	}
	k.Rest = rest
	// Experts and norms have several spellings.
	if inner, expert := strings.CutPrefix(rest, expertsPrefix); expert {
		k.parseExpert(inner)
	} else if !strings.HasPrefix(rest, "mlp.shared_experts.") {
		k.Rest = norms.Replace(rest)
	}
	return k, true
}

// parseAhead reads the name of a tensor of the layer in a layer of multi-token prediction, which
// torch_dist and older versions call transformer_layer.
func (k *Key) parseAhead(name string) (rest string, ok bool) {
	inner, ok := strings.CutPrefix(name, "mtp.layers.")
	number, behind, found := strings.Cut(inner, ".")
	n, err := strconv.ParseUint(number, 10, 31)
	if !ok || !found || err != nil {
		return "", false
	}
	for _, module := range []string{"mtp_model_layer.", aheadModule} {
		if rest, ok := strings.CutPrefix(behind, module); ok {
			k.Ahead = int(n)
			return rest, true
		}
	}
	return "", false
}

const aheadModule = "transformer_layer."

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
	if k.Expert == None {
		return k.prefix(layer) + k.Rest
	}
	return fmt.Sprintf("%smlp.experts.local_experts.%d.%s", k.prefix(layer), expert, k.Rest)
}

// prefix is that of our names in the key's layer, for a global one.
func (k Key) prefix(layer int) string {
	switch {
	case k.Ahead != None:
		return spec.MTPName(k.Ahead) + ".mtp_model_layer."
	case k.Layer == None:
		return ""
	}
	return checkpoint.LayerName(layer)
}

// Outside reports that k is in no layer.
func (k Key) Outside() bool { return k.Layer == None && k.Ahead == None }

// Split takes one of our names apart; an absent layer or expert is None.
func Split(name string) Key {
	k, _ := ParseKey(name)
	return k
}

// DistKeys are the names under which torch_dist stacks a tensor over layers (and experts): the name with Transformer
// Engine, and the one with Megatron's own modules (--transformer-impl local), which mostly are equal. Megatron's own
// modules take names of fused norms without latent attention, those before experts too, and none with it.
func DistKeys(m *spec.Model, k Key) (engine, local string) {
	prefix := layersPrefix
	switch {
	case k.Outside():
		return k.Rest, k.Rest
	case k.Ahead != None: // these are not stacked
		prefix = spec.MTPName(k.Ahead) + "." + aheadModule
	}
	if k.Expert != None {
		key := prefix + expertsPrefix + "experts." + k.Rest
		return key, key
	}
	engine, local = k.Rest, k.Rest
	if !k.beforeExperts(m) {
		engine = fusedNorms(m).Replace(k.Rest)
	}
	if m.Latent == nil {
		local = fusedNorms(m).Replace(k.Rest)
	}
	return prefix + engine, prefix + local
}

// beforeExperts reports the norm before a mixture of experts, which Transformer Engine does not fuse.
func (k Key) beforeExperts(m *spec.Model) bool {
	return strings.HasPrefix(k.Rest, "pre_mlp_layernorm.") && m.MixtureAt(k.layerOf(m))
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
		switch global := Split(p.Name); {
		case global.Outside():
		case p.Expert:
			if a.Bool("moe_grouped_gemm") {
				p.Key = k.prefix(k.Layer) + expertsPrefix + k.Rest + strconv.Itoa(k.Expert)
			}
		case global.beforeExperts(m):
		default:
			p.Key = k.prefix(k.Layer) + fusedNorms(m).Replace(k.Rest)
		}
	}
	return list
}

// layerOf is the number of the key's layer, which has one of its own.
func (k Key) layerOf(m *spec.Model) int {
	if k.Ahead != None {
		return m.NumLayers + k.Ahead
	}
	return k.Layer
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

package torch

import (
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/pickle"
)

// Megatron-LM before its core, and the forks of that time (BigScience's among
// them where they write mp_rank_XX/model_optim_rng.pt), keep a model as nested
// dicts under `language_model` and call its layers by older names. The tensors are
// the same: by head, queries, keys and values, since checkpoint version 2.
const before = "language_model"

// beforeNames are the older names of a layer's parts, and today's.
var beforeNames = strings.NewReplacer(
	"attention.query_key_value.", "self_attention.linear_qkv.", "self_attention.query_key_value.", "self_attention.linear_qkv.",
	"attention.dense.", "self_attention.linear_proj.", "self_attention.dense.", "self_attention.linear_proj.",
	"post_attention_layernorm.", "pre_mlp_layernorm.", "mlp.dense_h_to_4h.", "mlp.linear_fc1.", "mlp.dense_4h_to_h.", "mlp.linear_fc2.")

// modernize turns the state dict of such a file into today's, and says what of it
// stays behind. Others are as they are.
func (r *rank) modernize() error {
	old := false
	for i, d := range r.chunks {
		v, ok := d.Get(before)
		if !ok {
			continue
		}
		parts, ok := v.(*pickle.Dict)
		if !ok {
			return exitcode.Errorf(exitcode.BadData, "%s: %q has type %s; it must be a dict", r.path, before, pickle.TypeName(v))
		}
		version, _ := r.root.Get("checkpoint_version")
		if n, _ := pickle.Float(version); n < 2 {
			return exitcode.Errorf(exitcode.BadData, "%s: in checkpoint version %v, the rows of queries, keys and values are in a different order; first load the checkpoint with Megatron-LM 2 or later and save it again", r.path, version)
		}
		flat := &pickle.Dict{}
		flatten(flat, "", parts)
		if head, ok := d.Get("word_embeddings_for_head"); ok { // the last stage's copy
			if inner, ok := head.(*pickle.Dict); ok {
				flatten(flat, "output_layer.", inner)
			}
		}
		r.chunks[i], old = flat, true
	}
	if old {
		r.root.Set("optimizer", nil) // whose parameters are numbered in the order of those modules
		r.before = true
		r.completeArgs()
	}
	return nil
}

// flatten adds the tensors of nested dicts under today's names.
func flatten(to *pickle.Dict, prefix string, from *pickle.Dict) {
	for _, p := range from.Pairs {
		key, ok := p.Key.(string)
		if !ok {
			continue
		}
		switch v := p.Value.(type) {
		case *pickle.Dict:
			flatten(to, prefix+key+".", v)
		case *pickle.Tensor:
			to.Set(today(prefix+key), v)
		}
	}
}

// today is the present name of a flattened older one.
func today(name string) string {
	for _, stack := range []string{"encoder.", "transformer."} {
		if rest, ok := strings.CutPrefix(name, stack); ok {
			return "decoder." + beforeNames.Replace(rest)
		}
	}
	return name
}

// completeArgs gives arguments that did not exist yet the value of the only
// behaviour at that time.
func (r *rank) completeArgs() {
	v, _ := r.root.Get("args")
	o, ok := v.(*pickle.Object)
	if !ok || o.Attributes() == nil {
		return // openRanks reports its absence
	}
	if a := o.Attributes(); !has(a, "add_bias_linear") {
		a.Set("add_bias_linear", true)
	}
}

func has(d *pickle.Dict, key string) bool {
	_, ok := d.Get(key)
	return ok
}

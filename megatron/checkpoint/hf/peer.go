package hf

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/spec"
)

// A peer is a config.json as transformers' own classes read it, written apart from
// the reader and the writer here: what these two misunderstand alike it shows.
// Keys that a class does not know change nothing; keys that are not there have the
// class's default (transformers 5.23; tests/proofs/checkpoints/trips.sh lets
// transformers itself judge).
type peer struct {
	family string
	config map[string]any
}

// CheckPeer holds a folder against the model that it was written for, as
// transformers will build it: every setting that its class honours, and every
// tensor with its shape. It judges peers alone: other families' rules are not written a
// second time.
func CheckPeer(dir string, m *spec.Model) (judged bool, err error) {
	config, err := readObject(filepath.Join(dir, ConfigName))
	if err != nil {
		return false, err
	}
	family, _ := config["model_type"].(string)
	if !slices.Contains(peers, family) {
		return false, nil
	}
	p := peer{family, config}
	files, err := safetensors.OpenFolder(dir)
	if err != nil {
		return false, err
	}
	defer files.Close()
	list := append(p.settings(m), p.tensors(files)...)
	if len(list) > 0 {
		return true, exitcode.Errorf(exitcode.Differs, "%s: transformers would build a different model from this folder: %w; do not use the folder", dir, Some(list))
	}
	return true, nil
}

// number is a key's value, or the class's default for it.
func (p peer) number(key string, otherwise float64) float64 {
	if v, ok := p.config[key].(float64); ok {
		return v
	}
	return otherwise
}

func (p peer) on(key string, otherwise bool) bool {
	if v, ok := p.config[key].(bool); ok {
		return v
	}
	return otherwise
}

// peers are the families whose rules are written a second time here.
var peers = append([]string{GPT2, GPTNeo, Bloom}, llamas...)

// llamas are those with RoPE.
var llamas = []string{GPTNeoX, Starcoder2, Phi3, SmolLM3, Llama, Mistral, Mixtral, Qwen2, Qwen3, Olmo2, Qwen2MoE, Qwen3MoE, OLMoE, GLM4MoE}

// settings lists what transformers computes otherwise than m wants.
func (p peer) settings(m *spec.Model) (list []error) {
	same := func(what string, theirs, ours float64) {
		if theirs != ours {
			list = append(list, fmt.Errorf("%s is %g in transformers, but %g in the model", what, theirs, ours))
		}
	}
	truth := map[bool]float64{true: 1}
	// Families of Llama's kind: positions, norms, MLP, windows, router.
	if slices.Contains(llamas, p.family) {
		same("the number of channels that RoPE rotates", p.rotating(), float64(m.RotaryDims()))
		theta := p.rope("rope_theta", map[string]float64{Mixtral: 1e6, SmolLM3: 2e6}[p.family])
		if inner, _ := p.config["rope_parameters"].(map[string]any); p.family == GPTNeoX && inner["rope_theta"] == nil {
			theta = p.number("rotary_emb_base", 10000)
		}
		same("rope_theta", theta, m.RotaryBase)
		same("the RoPE position scale", p.ropeFactor("linear"), max(1, m.RotaryInterpolation))
		factor := 1.0
		if m.RopeScaling != nil {
			factor = m.RopeScaling.Factor
		}
		same("the factor of Llama 3's RoPE scaling", p.ropeFactor("llama3"), factor)
		key := map[string]string{GPTNeoX: "layer_norm_eps", Starcoder2: "norm_epsilon"}[p.family]
		if key == "" {
			key = "rms_norm_eps"
		}
		same(key, p.number(key, map[bool]float64{true: 1e-5, false: 1e-6}[slices.Contains([]string{GPTNeoX, Starcoder2, Phi3, Mixtral, Olmo2, OLMoE, GLM4MoE}, p.family)]), m.NormEpsilon)
		p.plainMLP(m, same)
		p.noRope(m, same)
		p.windows(m, same)
		same("the scale of attention scores", 1/math.Sqrt(p.headDim()), m.ScoreScale())
		same("norms after attention and MLP", truth[p.family == Olmo2], truth[m.NormAfter])
		same("tied embeddings", truth[p.on("tie_word_embeddings", p.family == Starcoder2 || p.family == SmolLM3)], truth[m.Tied])
		if m.Experts != nil {
			p.router(m, same)
		}
		return list
	}
	// GPT-2, GPT-Neo and BLOOM.
	same("layer_norm_epsilon", p.number("layer_norm_epsilon", 1e-5), m.NormEpsilon)
	same("tied embeddings", truth[p.on("tie_word_embeddings", true)], truth[m.Tied])
	if p.family == GPTNeo {
		p.windows(m, same)
		same("the scale of attention scores", 1, m.ScoreScale())
		same("num_heads", p.number("num_heads", 16), float64(m.NumAttentionHeads))
	}
	if p.family == GPT2 || p.family == GPTNeo {
		kinds := map[string]string{"gelu_new": spec.GeluTanh, "gelu": spec.GeluErf, "relu2": spec.SquaredRelu}
		form, _ := p.config["activation_function"].(string)
		same("activation_function", truth[kinds[form] == m.Activation], 1)
	}
	switch p.family {
	case GPT2:
		same("n_head", p.number("n_head", 12), float64(m.NumAttentionHeads))
	case Bloom:
		same("n_head", p.number("n_head", 8), float64(m.NumAttentionHeads))
		same("tanh GELU", 1, truth[m.Activation == spec.GeluTanh])
	}
	return list
}

// rotating is how many channels of a head turn.
func (p peer) rotating() float64 {
	otherwise, listed := map[string]float64{GLM4MoE: 0.5, Phi3: 1, GPTNeoX: 0.25}[p.family]
	if !listed {
		return p.headDim()
	}
	if p.family == GPTNeoX {
		otherwise = p.number("rotary_pct", otherwise)
	}
	return math.Floor(p.headDim() * p.rope("partial_rotary_factor", otherwise))
}

// plainMLP holds what families whose MLP is not gated do otherwise.
func (p peer) plainMLP(m *spec.Model, same func(what string, theirs, ours float64)) {
	kinds := map[string]string{"gelu_new": spec.GeluTanh, "gelu_pytorch_tanh": spec.GeluTanh, "gelu": spec.GeluErf, "relu2": spec.SquaredRelu}
	form, given := p.config["hidden_act"].(string)
	truth := map[bool]float64{true: 1}
	switch {
	case p.family == GPTNeoX && !given:
		form = "gelu"
	case p.family == Starcoder2 && !given:
		form = "gelu_pytorch_tanh"
	}
	if p.family == GPTNeoX || p.family == Starcoder2 {
		same("hidden_act", truth[kinds[form] == m.Activation], 1)
		same("LayerNorm", 1, truth[m.Normalization == spec.LayerNorm])
	}
	if p.family == GPTNeoX {
		same("attention and MLP in parallel", truth[p.on("use_parallel_residual", true)], truth[m.ParallelResidual])
	}
}

// noRope holds which layers rotate.
func (p peer) noRope(m *spec.Model, same func(what string, theirs, ours float64)) {
	listed, _ := p.config["no_rope_layers"].([]any)
	truth := map[bool]float64{true: 1}
	for layer := range m.NumLayers {
		rotates := true
		if p.family == SmolLM3 {
			rotates = (layer+1)%max(1, int(p.number("no_rope_layer_interval", 4))) != 0
			if listed != nil {
				rotates = layer < len(listed) && listed[layer] == 1.0
			}
		}
		same(fmt.Sprintf("layer %d's rotation", layer), truth[rotates], truth[m.RopeAt(layer)])
	}
}

// rope is a number of rope_parameters, of the top level, or the default.
func (p peer) rope(key string, otherwise float64) float64 {
	if otherwise == 0 {
		otherwise = 10000
	}
	inner, _ := p.config["rope_parameters"].(map[string]any)
	if v, ok := inner[key].(float64); ok {
		return v
	}
	return p.number(key, otherwise)
}

// ropeFactor is the factor of a kind of scaling, 1 where it is of another.
func (p peer) ropeFactor(kind string) float64 {
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		inner, _ := p.config[key].(map[string]any)
		if factor, ok := inner["factor"].(float64); ok && inner["rope_type"] == kind {
			return factor
		}
	}
	return 1
}

// headDim is the width of a head; all of it rotates, whatever partial_rotary_factor says.
func (p peer) headDim() float64 {
	if p.family == Qwen3 {
		return p.number("head_dim", 128)
	}
	return p.number("head_dim", math.Floor(p.number("hidden_size", 4096)/p.number("num_attention_heads", 32)))
}

// windows holds each layer's window against the model's.
func (p peer) windows(m *spec.Model, same func(what string, theirs, ours float64)) {
	for layer := range m.NumLayers {
		same(fmt.Sprintf("layer %d's window", layer), p.window(layer), float64(m.WindowAt(layer)+1))
	}
}

// neoKinds is attention_types taken apart: a kind a layer.
func (p peer) neoKinds() (kinds []any) {
	types, ok := p.config["attention_types"].([]any)
	if !ok {
		types = []any{[]any{[]any{"global", "local"}, 12.0}}
	}
	for _, t := range types {
		if pair, ok := t.([]any); ok && len(pair) == 2 {
			names, _ := pair[0].([]any)
			times, _ := pair[1].(float64)
			for range int(min(times, maxLayers)) {
				kinds = append(kinds, names...)
			}
		}
	}
	return kinds
}

// window is how many keys a query of a layer sees, itself included; 0: all.
func (p peer) window(layer int) float64 {
	switch p.family {
	// Each case is the rule of that family's configuration class in transformers: which layers slide, whether
	// a switch must be on, and the default width.
	case GPTNeo:
		if kinds := p.neoKinds(); layer < len(kinds) && kinds[layer] == "local" {
			return p.number("window_size", 256)
		}
	case Qwen3MoE:
		if p.on("use_sliding_window", false) {
			return p.number("sliding_window", 4096)
		}
	case Qwen2MoE:
		kinds, listed := p.config["layer_types"].([]any)
		slides := !listed && layer%2 == 0 && float64(layer) < p.number("max_window_layers", 28) || layer < len(kinds) && kinds[layer] == "sliding_attention"
		if p.on("use_sliding_window", false) && slides {
			return p.number("sliding_window", 4096)
		}
	case SmolLM3:
		kinds, listed := p.config["layer_types"].([]any)
		if p.on("use_sliding_window", false) && listed && layer < len(kinds) && kinds[layer] == "sliding_attention" {
			return p.number("sliding_window", 0)
		}
	case Mistral, Mixtral, Phi3, Starcoder2:
		if _, ok := p.config["sliding_window"]; !ok && p.family == Mistral {
			return 4096
		}
		return p.number("sliding_window", 0)
	case Qwen2, Qwen3:
		kinds, listed := p.config["layer_types"].([]any)
		slides := !listed && float64(layer) >= p.number("max_window_layers", 28) || layer < len(kinds) && kinds[layer] == "sliding_attention"
		if p.on("use_sliding_window", false) && slides {
			return p.number("sliding_window", 4096)
		}
	}
	return 0
}

// tensors lists what the folder lacks, has too much or in another shape.
func (p peer) tensors(files *safetensors.Folder) (list []error) {
	want := shapes{}
	switch {
	case p.family == GPTNeoX:
		p.gptNeoX(want)
	case slices.Contains(llamas, p.family):
		p.llama(want)
	case p.family == GPTNeo:
		p.gptNeo(want)
	default:
		p.plain(want)
	}
	for _, name := range files.Names() {
		info, _ := files.Info(name)
		if shape, ok := want[name]; !ok {
			list = append(list, fmt.Errorf("tensor %q of the files is not in transformers' model", name))
		} else if !slices.Equal(shape, info.Shape) {
			list = append(list, fmt.Errorf("tensor %q has the shape %v in the files, but %v in transformers' model", name, info.Shape, shape))
		}
		delete(want, name)
	}
	for name := range want {
		list = append(list, fmt.Errorf("tensor %q of transformers' model is not in the files", name))
	}
	slices.SortFunc(list, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return list
}

// shapes are the parameters that a class makes, by name.
type shapes map[string][]int64

func (s shapes) add(name string, shape ...float64) {
	for _, n := range shape {
		s[name] = append(s[name], int64(n))
	}
}

// linear adds a weight of that shape and a bias.
func (s shapes) linear(name string, bias bool, width float64, shape ...float64) {
	s.add(name+".weight", shape...)
	if bias {
		s.add(name+".bias", width)
	}
}

func (p peer) llama(s shapes) {
	h, ffn, heads := p.number("hidden_size", 4096), p.number("intermediate_size", 0), p.number("num_attention_heads", 32)
	q, kv := heads*p.headDim(), p.number("num_key_value_heads", heads)*p.headDim()
	if p.family == Starcoder2 {
		p.starcoder2(s)
		return
	}
	all := slices.Contains([]string{Llama, SmolLM3, Qwen3, Olmo2, Qwen3MoE, OLMoE}, p.family) && p.on("attention_bias", false)
	qkv := all || p.family == Qwen2 || p.family == Qwen2MoE && p.on("qkv_bias", true) || p.family == GLM4MoE && p.on("attention_bias", false)
	mlp := (p.family == Llama || p.family == SmolLM3) && p.on("mlp_bias", false)
	// Embedding, final norm, output layer.
	s.add("model.embed_tokens.weight", p.number("vocab_size", 0), h)
	s.add("model.norm.weight", h)
	if !p.on("tie_word_embeddings", p.family == SmolLM3) {
		s.add("lm_head.weight", p.number("vocab_size", 0), h)
	}
	// Each layer: norms, attention, MLP or mixture.
	for i := range int(p.number("num_hidden_layers", 32)) {
		layer := fmt.Sprintf("model.layers.%d.", i)
		first := "input_layernorm"
		if p.family == Olmo2 {
			first = "post_feedforward_layernorm"
		}
		s.add(layer+first+".weight", h)
		s.add(layer+"post_attention_layernorm.weight", h)
		projections := map[string]float64{"q_proj": q, "k_proj": kv, "v_proj": kv}
		if p.family == Phi3 {
			projections = map[string]float64{"qkv_proj": q + 2*kv}
		}
		for name, width := range projections {
			s.linear(layer+"self_attn."+name, qkv, width, width, h)
		}
		s.linear(layer+"self_attn.o_proj", all, h, h, q)
		if p.family == Qwen3 || p.family == Qwen3MoE || p.family == GLM4MoE && p.on("use_qk_norm", false) {
			s.add(layer+"self_attn.q_norm.weight", p.headDim())
			s.add(layer+"self_attn.k_norm.weight", p.headDim())
		}
		if p.family == Olmo2 || p.family == OLMoE {
			s.add(layer+"self_attn.q_norm.weight", q)
			s.add(layer+"self_attn.k_norm.weight", kv)
		}
		if p.sparse(i) {
			p.experts(s, layer, h, ffn)
			continue
		}
		if p.family == Phi3 {
			s.linear(layer+"mlp.gate_up_proj", false, 0, 2*ffn, h)
		} else {
			s.linear(layer+"mlp.gate_proj", mlp, ffn, ffn, h)
			s.linear(layer+"mlp.up_proj", mlp, ffn, ffn, h)
		}
		s.linear(layer+"mlp.down_proj", mlp, h, h, ffn)
	}
}

func (p peer) starcoder2(s shapes) {
	h, heads, bias := p.number("hidden_size", 3072), p.number("num_attention_heads", 24), p.on("use_bias", true)
	q, kv, ffn := heads*p.headDim(), p.number("num_key_value_heads", 2)*p.headDim(), p.number("intermediate_size", 12288)
	s.add("model.embed_tokens.weight", p.number("vocab_size", 49152), h)
	s.linear("model.norm", true, h, h)
	if !p.on("tie_word_embeddings", true) {
		s.add("lm_head.weight", p.number("vocab_size", 49152), h)
	}
	for i := range int(p.number("num_hidden_layers", 30)) {
		layer := fmt.Sprintf("model.layers.%d.", i)
		s.linear(layer+"input_layernorm", true, h, h)
		s.linear(layer+"post_attention_layernorm", true, h, h)
		for name, width := range map[string]float64{"q_proj": q, "k_proj": kv, "v_proj": kv} {
			s.linear(layer+"self_attn."+name, bias, width, width, h)
		}
		s.linear(layer+"self_attn.o_proj", bias, h, h, q)
		s.linear(layer+"mlp.c_fc", bias, ffn, ffn, h)
		s.linear(layer+"mlp.c_proj", bias, h, h, ffn)
	}
}

func (p peer) gptNeoX(s shapes) {
	h, ffn := p.number("hidden_size", 6144), p.number("intermediate_size", 24576)
	s.add("gpt_neox.embed_in.weight", p.number("vocab_size", 50432), h)
	s.linear("gpt_neox.final_layer_norm", true, h, h)
	if !p.on("tie_word_embeddings", false) {
		s.add("embed_out.weight", p.number("vocab_size", 50432), h)
	}
	for i := range int(p.number("num_hidden_layers", 44)) {
		layer := fmt.Sprintf("gpt_neox.layers.%d.", i)
		s.linear(layer+"input_layernorm", true, h, h)
		s.linear(layer+"post_attention_layernorm", true, h, h)
		s.linear(layer+"attention.query_key_value", p.on("attention_bias", true), 3*h, 3*h, h)
		s.linear(layer+"attention.dense", p.on("attention_bias", true), h, h, h)
		s.linear(layer+"mlp.dense_h_to_4h", true, ffn, ffn, h)
		s.linear(layer+"mlp.dense_4h_to_h", true, h, h, ffn)
	}
}

func (p peer) gptNeo(s shapes) {
	h := p.number("hidden_size", 2048)
	ffn := p.number("intermediate_size", 4*h)
	s.add("transformer.wte.weight", p.number("vocab_size", 50257), h)
	s.add("transformer.wpe.weight", p.number("max_position_embeddings", 2048), h)
	s.linear("transformer.ln_f", true, h, h)
	if !p.on("tie_word_embeddings", true) {
		s.add("lm_head.weight", p.number("vocab_size", 50257), h)
	}
	for i := range int(p.number("num_layers", 24)) {
		layer := fmt.Sprintf("transformer.h.%d.", i)
		for _, name := range []string{"q_proj", "k_proj", "v_proj", "out_proj"} {
			s.linear(layer+"attn.attention."+name, name == "out_proj", h, h, h)
		}
		s.linear(layer+"mlp.c_fc", true, ffn, ffn, h)
		s.linear(layer+"mlp.c_proj", true, h, h, ffn)
		s.linear(layer+"ln_1", true, h, h)
		s.linear(layer+"ln_2", true, h, h)
	}
}

// plain are GPT-2, whose Conv1D keeps [in, out], and BLOOM.
func (p peer) plain(s shapes) {
	h := p.number("n_embd", 768)
	ffn := p.number("n_inner", 4*h)
	names := []string{"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj", "ln_1", "ln_2", "wte"}
	if p.family == Bloom {
		h = p.number("hidden_size", 64)
		ffn = 4 * h
		names = []string{"self_attention.query_key_value", "self_attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h",
			"input_layernorm", "post_attention_layernorm", "word_embeddings"}
		s.linear("transformer.word_embeddings_layernorm", true, h, h)
	} else {
		s.add("transformer.wpe.weight", p.number("n_positions", 1024), h)
	}
	// Embedding, final norm, output layer, then the layers.
	s.add("transformer."+names[6]+".weight", p.number("vocab_size", 0), h)
	s.linear("transformer.ln_f", true, h, h)
	if !p.on("tie_word_embeddings", true) {
		s.add("lm_head.weight", p.number("vocab_size", 0), h)
	}
	for i := range int(p.number("n_layer", map[string]float64{GPT2: 12, Bloom: 2}[p.family])) {
		layer := fmt.Sprintf("transformer.h.%d.", i)
		for k, shape := range [][2]float64{{3 * h, h}, {h, h}, {ffn, h}, {h, ffn}} {
			out, in := shape[0], shape[1]
			if p.family == GPT2 {
				shape = [2]float64{in, out}
			}
			s.linear(layer+names[k], true, out, shape[0], shape[1])
		}
		s.linear(layer+names[4], true, h, h)
		s.linear(layer+names[5], true, h, h)
	}
}

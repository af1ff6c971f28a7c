package gguf

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/gguf"
	"monotron/megatron/checkpoint/hf"
)

// settling turns a file's metadata into a config.json.
type settling struct {
	f        *gguf.File
	family   *family
	config   map[string]any
	used     map[string]bool // keys that are understood
	problems []error
	still    bool  // no layer rotates
	ahead    int64 // layers behind the model's that predict further tokens, and are not read
}

// settle reads the model that a file describes. Metadata of the architecture that is not
// understood is an error: it might change results.
func settle(f *gguf.File) (*hf.Config, *settling, error) {
	s := &settling{f: f, config: map[string]any{}, used: map[string]bool{}}
	if err := s.chooseFamily(); err != nil {
		return nil, nil, err
	}
	// Metadata becomes a config.json of Hugging Face's, key by key; all problems are reported together.
	s.config["model_type"] = s.family.hf
	for _, k := range s.family.settings() {
		s.setting(k.key, k.setting)
	}
	for key, v := range s.family.fixed {
		s.config[key] = v
	}
	s.furtherLayers()
	s.heads()
	s.rope()
	s.tensors()
	if s.family.settle != nil {
		s.family.settle(s)
	}
	s.rest()
	if err := errors.Join(s.problems...); err != nil {
		return nil, nil, exitcode.Errorf(exitcode.BadData, "%s: %w", f.Path, err)
	}
	// That is read like any other.
	text, err := json.Marshal(s.config)
	if err != nil {
		return nil, nil, exitcode.With(exitcode.Internal, err)
	}
	config, err := hf.ParseConfig(f.Path, text)
	if err != nil {
		return nil, nil, err
	}
	return config, s, s.sizes(config)
}

func (s *settling) fail(format string, args ...any) {
	s.problems = append(s.problems, fmt.Errorf(format, args...))
}

// chooseFamily finds the row of general.architecture; of Llama's those with experts are Mixtral.
func (s *settling) chooseFamily() error {
	v, _ := s.f.Value("general.architecture")
	arch, ok := v.String()
	if !ok {
		return exitcode.Errorf(exitcode.BadData, "%s: general.architecture is %s; it must be of type STRING", s.f.Path, v.Kind())
	}
	if v, ok := s.f.Value("general.type"); ok {
		if kind, _ := v.String(); kind != "model" {
			return exitcode.Errorf(exitcode.BadData, "%s: general.type is %q; only models can be read", s.f.Path, kind)
		}
	}
	name := arch
	if n, ok := s.integer(arch + ".expert_count"); ok && n > 0 && arch == "llama" {
		name = hf.Mixtral
	}
	for i := range families {
		if f := &families[i]; f.hf == name || f.arch == arch && name == arch && (f.is == nil || f.is(s)) {
			s.family = &families[i]
			return nil
		}
	}
	return exitcode.Errorf(exitcode.BadData, "%s: the architecture %q is not supported; the supported architectures are %s", s.f.Path, arch, architectures())
}

func (s *settling) key(name string) string { return s.family.arch + "." + name }

func (s *settling) integer(key string) (int64, bool) {
	v, ok := s.f.Value(key)
	if !ok {
		return 0, false
	}
	return v.Int()
}

// setting takes one key over.
func (s *settling) setting(key, setting string) {
	v, ok := s.f.Value(s.key(key))
	if !ok {
		return
	}
	s.used[s.key(key)] = true
	if slices.Contains(truths, key) {
		b, ok := v.Bool()
		if !ok {
			s.fail("%s is %s; it must be of type BOOL", s.key(key), v.Kind())
		}
		s.config[setting] = b
		return
	}
	if slices.Contains(fractions, key) {
		if x, ok := s.number(key); ok {
			s.config[setting] = fraction(x)
		}
		return
	}
	n, ok := v.Int()
	if !ok {
		s.fail("%s is %s; it must be one integer", s.key(key), v.Kind())
		return
	}
	if n < 0 || n > math.MaxInt32 {
		s.fail("%s is %d; it must be from 0 to %d", s.key(key), n, math.MaxInt32)
		return
	}
	if n == 0 && (strings.HasPrefix(key, "expert") || key == "attention.sliding_window") {
		return // none
	}
	s.config[setting] = n
}

// fraction is a number as the shortest text of a float32 says it: 1e-05, where a float32 is
// 9.99999975e-06.
func fraction(x float64) json.Number {
	return json.Number(strconv.FormatFloat(x, 'g', -1, 32))
}

// furtherLayers takes layers that predict further tokens off the number of layers.
func (s *settling) furtherLayers() {
	n, ok := s.take("nextn_predict_layers")
	layers, _ := s.config["num_hidden_layers"].(int64)
	if ok && n > 0 && n < layers {
		s.ahead, s.config["num_hidden_layers"] = n, layers-n
	}
}

// heads reads the width of a head.
func (s *settling) heads() {
	if s.family.arch == "deepseek2" {
		return // latent reads them
	}
	if n, ok := s.headWidth("attention.key_length", "attention.value_length", false); ok {
		s.config["head_dim"] = n
	}
}

// headWidth is the width of a head, which two settings give: that of its keys and that of its values.
// Both may be missing unless the width is needed.
func (s *settling) headWidth(keys, values string, needed bool) (int64, bool) {
	keys, values = s.key(keys), s.key(values)
	s.used[keys], s.used[values] = true, true
	k, okK := s.integer(keys)
	v, okV := s.integer(values)
	kind := func(key string) string {
		v, _ := s.f.Value(key)
		return v.Kind()
	}
	const alone = "%s is %s; it must be an integer and equal to %s, which is %d"
	switch {
	case !okK && !okV && needed:
		s.fail("%s is %s; it must be an integer", keys, kind(keys))
	case okK && !okV:
		s.fail(alone, values, kind(values), keys, k)
	case okV && !okK:
		s.fail(alone, keys, kind(keys), values, v)
	case k != v:
		s.fail("%s is %d, but %s is %d; they must be equal", keys, k, values, v)
	}
	return k, okK && okV && k == v
}

// rope reads how positions are scaled.
func (s *settling) rope() {
	text := func(key string) string {
		v, _ := s.f.Value(s.key(key))
		name, _ := v.String()
		return name
	}
	kind := text("rope.scaling.type")
	// Of the kinds of scaling, linear alone is written into metadata in full.
	switch kind {
	case "", "none":
	case "linear":
		v, _ := s.f.Value(s.key("rope.scaling.factor"))
		factor, ok := v.Float()
		if !ok {
			s.fail("%s is %s; it must be a number", s.key("rope.scaling.factor"), v.Kind())
			return
		}
		s.config["rope_scaling"] = map[string]any{"rope_type": "linear", "factor": fraction(factor)}
		s.used[s.key("rope.scaling.factor")] = true
	case "yarn":
		s.yarn()
	default:
		s.fail("%s %q is not supported; it must be linear or yarn", s.key("rope.scaling.type"), kind)
	}
	s.used[s.key("rope.scaling.type")] = true
	// Families whose own rules llama.cpp has in code.
	switch s.family.arch {
	case "gemma3":
		s.gemma3()
		s.gemma()
	case "gemma2":
		s.gemma()
	}
}

// gemma3 adds what the architecture implies: every sixth layer sees all, and rotates by
// another base.
func (s *settling) gemma3() {
	local := any(10000.0)
	if v, ok := s.f.Value(s.key("rope.freq_base_swa")); ok {
		x, _ := v.Float()
		local = fraction(x)
		s.used[s.key("rope.freq_base_swa")] = true
	}
	global := s.config["rope_theta"]
	if global == nil {
		global = 1e6
	}
	delete(s.config, "rope_theta")
	s.config["rope_parameters"] = map[string]any{
		"full_attention": map[string]any{"rope_type": "default", "rope_theta": global}, "sliding_attention": map[string]any{"rope_type": "default", "rope_theta": local}}
	layers, _ := s.config["num_hidden_layers"].(int64)
	var types []string
	for i := range min(layers, 1<<14) {
		if types = append(types, "sliding_attention"); (i+1)%6 == 0 {
			types[i] = "full_attention"
		}
	}
	s.config["layer_types"] = types
}

// gemma adds what Gemma 2 and 3 have in common.
func (s *settling) gemma() {
	s.config["hidden_activation"] = "gelu_pytorch_tanh"
	number := func(key string) int64 { n, _ := s.config[key].(int64); return n }
	if s.config["head_dim"] == nil {
		s.config["head_dim"] = int64(256)
	}
	s.config["query_pre_attn_scalar"] = s.family.scoreDivisor(number("hidden_size"), number("num_attention_heads"), number("head_dim"), number("num_hidden_layers"))
}

// tensors reads what the list of tensors says: the vocabulary, biases, a separate head.
func (s *settling) tensors() {
	has := func(name string) bool { _, ok := s.f.Tensor(name); return ok }
	words, ok := s.f.Tensor("token_embd.weight")
	if !ok {
		s.fail("the tensor \"token_embd.weight\" is missing")
		return
	}
	if len(words.Dims) != 2 {
		s.fail("tensor \"token_embd.weight\" has %d dimensions; it must have two", len(words.Dims))
		return
	}
	s.config["vocab_size"] = words.Dims[1]
	s.config["tie_word_embeddings"] = !has("output.weight")
	s.config["attention_bias"] = has("blk.0.attn_q.bias") || s.family.hf == hf.GPTNeoX
	s.config["qkv_bias"] = has("blk.0.attn_q.bias")
	s.config["mlp_bias"] = has("blk.0.ffn_up.bias")
	s.config["use_bias"] = has("blk.0.ffn_up.bias")
	if s.family.hf == hf.GLM4MoE {
		s.config["use_qk_norm"] = has("blk.0.attn_q_norm.weight")
	}
}

// harmless are keys that say what is known otherwise.
var harmless = []string{"vocab_size", "rope.dimension_count", "attention.causal", "tensor_data_layout", "rope.scaling.finetuned", "expert_gating_func"}

// rest refuses keys of the architecture that nothing understands.
func (s *settling) rest() {
	for _, key := range s.f.Keys {
		name, ok := strings.CutPrefix(key, s.family.arch+".")
		if ok && !s.used[key] && !slices.Contains(harmless, name) {
			s.fail("metadata %s is not supported; ignoring it might change the results", key)
		}
	}
	causal, _ := s.f.Value(s.key("attention.causal"))
	if b, ok := causal.Bool(); ok && !b {
		s.fail("%s is false: only decoders are supported", s.key("attention.causal"))
	}
	gating, ok := s.integer(s.key("expert_gating_func"))
	if want := map[bool]int64{true: 2, false: 1}[s.family.sigmoid()]; ok && gating != 0 && gating != want {
		s.fail("%s is %d; in this architecture it must be %d", s.key("expert_gating_func"), gating, want)
	}
	turned, ok := s.integer(s.key("rope.dimension_count"))
	head, known := s.config["head_dim"].(int64)
	if full, ok := s.config["global_head_dim"].(int64); ok {
		head = full
	}
	part := slices.Contains([]string{hf.GPTNeoX, hf.Phi3, hf.GLM4MoE, hf.Qwen3Next, hf.Qwen35, hf.Qwen35MoE, hf.MiniMax2}, s.family.hf)
	switch {
	case !ok || s.still || !known && s.family.hf != hf.GPTNeoX && s.family.hf != hf.Phi3:
	case part:
		s.partial(turned, head)
	case turned != head:
		s.fail("%s is %d; it must be %d, because RoPE must rotate all channels of a head", s.key("rope.dimension_count"), turned, head)
	}
}

// partial sets the part of a head that rotates.
func (s *settling) partial(turned, head int64) {
	if head == 0 {
		hidden, _ := s.config["hidden_size"].(int64)
		heads, _ := s.config["num_attention_heads"].(int64)
		head = hidden / max(1, heads)
	}
	if turned < 1 || turned > head {
		s.fail("%s is %d; it must be from 1 to %d, the number of channels of a head", s.key("rope.dimension_count"), turned, head)
		return
	}
	share := float64(turned) / float64(head)
	s.config["rotary_pct"], s.config["partial_rotary_factor"] = share, share
}

// sizes checks numbers that are said twice, and reads Llama 3's scaling.
func (s *settling) sizes(c *hf.Config) error {
	if err := s.experts(c); err != nil {
		return err
	}
	if n, ok := s.integer(s.key("vocab_size")); ok && n != int64(c.Model.VocabSize) {
		return exitcode.Errorf(exitcode.BadData, "%s: %s is %d, but token_embd.weight has %d rows", s.f.Path, s.key("vocab_size"), n, c.Model.VocabSize)
	}
	t, ok := s.f.Tensor(ropeFreqs)
	if !ok || s.family.hf == hf.Gemma4 {
		return nil
	}
	if !s.family.scales() {
		return exitcode.Errorf(exitcode.BadData, "%s: tensor %q is not supported in the architecture %s", s.f.Path, ropeFreqs, s.family.arch)
	}
	if c.Model.RotaryInterpolation > 1 {
		return exitcode.Errorf(exitcode.BadData, "%s: tensor %q cannot be combined with %s linear", s.f.Path, ropeFreqs, s.key("rope.scaling.type"))
	}
	scaling, err := scalingOf(s.f, t, c.Model.RotaryBase, c.Model.RotaryDims())
	c.Model.RopeScaling = scaling
	return err
}

// experts compares the number of experts with the routers' rows, since every expert of that number takes memory.
func (s *settling) experts(c *hf.Config) error {
	e := c.Model.Experts
	if e == nil || e.Num == 0 {
		return nil
	}
	routers := 0
	for _, t := range s.f.Tensors {
		if !strings.HasPrefix(t.Name, "blk.") || !strings.HasSuffix(t.Name, ".ffn_gate_inp.weight") {
			continue
		}
		if shape := t.Shape(); len(shape) == 0 || shape[0] != int64(e.Num) {
			return exitcode.Errorf(exitcode.BadData, "%s: %s is %d, but %s has the shape %v", s.f.Path, s.key("expert_count"), e.Num, t.Name, shape)
		}
		routers++
	}
	if routers == 0 {
		return exitcode.Errorf(exitcode.BadData, "%s: %s is %d, but the file has no blk.N.ffn_gate_inp.weight", s.f.Path, s.key("expert_count"), e.Num)
	}
	return nil
}

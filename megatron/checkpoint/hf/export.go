package hf

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
)

// ExportOptions say how a folder is written.
type ExportOptions struct {
	Family       string // empty: FamilyOf
	DType        string // F32 (default), BF16 or F16
	MaxPositions int    // for config.json where positions are computed; 0: 2048
}

var torchTypes = map[string]string{"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}

// Export writes a model that a program holds in memory to the new folder dir.
// get returns Megatron's tensors, which may have padded vocabulary rows: they
// are dropped. On an error nothing is left.
func Export(dir string, m *spec.Model, get func(global string) ([]float32, error), o ExportOptions) error {
	if o.DType == "" {
		o.DType = "F32"
	}
	if torchTypes[o.DType] == "" {
		return exitcode.Errorf(exitcode.Usage, "weights cannot be exported as %s; choose F32, BF16 or F16", o.DType)
	}
	shape := *m
	if o.MaxPositions > 0 {
		shape.Context = o.MaxPositions
	}
	src := checkpoint.Cast(Values(&shape, o.Family, get), func(checkpoint.Tensor) string { return o.DType })
	_, err := Write(context.Background(), dir, src, checkpoint.WriteOptions{Family: o.Family})
	return err
}

// configOf writes what transformers 4 and 5 both read.
func configOf(m *spec.Model, o ExportOptions) map[string]any {
	c := map[string]any{
		"architectures": []string{rows[o.Family].architecture}, "model_type": o.Family, "torch_dtype": torchTypes[o.DType], "dtype": torchTypes[o.DType],
		"vocab_size": m.VocabSize, "tie_word_embeddings": m.Tied, "use_cache": true,
	}
	if m.InitStd > 0 { // 0: of a checkpoint that does not say it
		c["initializer_range"] = real(m.InitStd)
	}
	positions := o.MaxPositions
	if positions == 0 {
		positions = 2048
	}
	rows[o.Family].config(c, m, positions)
	return c
}

func gpt2Config(c map[string]any, m *spec.Model, _ int) {
	put(c, "n_layer", m.NumLayers, "n_embd", m.HiddenSize, "n_head", m.NumAttentionHeads, "n_inner", m.FFNHiddenSize,
		"n_positions", m.MaxPositions, "layer_norm_epsilon", m.NormEpsilon, "activation_function", activationName(m))
}

func gptNeoConfig(c map[string]any, m *spec.Model, _ int) {
	put(c, "num_layers", m.NumLayers, "hidden_size", m.HiddenSize, "num_heads", m.NumAttentionHeads, "intermediate_size", m.FFNHiddenSize,
		"max_position_embeddings", m.MaxPositions, "layer_norm_epsilon", m.NormEpsilon, "activation_function", activationName(m),
		"window_size", m.WindowLeft+1, "attention_types", neoTypes(m))
	if m.WindowLeft < 0 {
		c["window_size"] = 256 // in no layer
	}
}

func bloomConfig(c map[string]any, m *spec.Model, positions int) {
	put(c, "n_layer", m.NumLayers, "hidden_size", m.HiddenSize, "n_head", m.NumAttentionHeads, "layer_norm_epsilon", m.NormEpsilon, "seq_length", positions)
}

func gptNeoXConfig(c map[string]any, m *spec.Model, positions int) {
	put(c, "num_hidden_layers", m.NumLayers, "hidden_size", m.HiddenSize, "num_attention_heads", m.NumAttentionHeads, "intermediate_size", m.FFNHiddenSize,
		"max_position_embeddings", positions, "layer_norm_eps", m.NormEpsilon, "hidden_act", activationName(m), "attention_bias", m.QKVBias,
		"use_parallel_residual", m.ParallelResidual, "rotary_pct", m.RotaryPercent, "rotary_emb_base", m.RotaryBase)
	rotaryConfig(c, m)
}

func put(c map[string]any, pairs ...any) {
	for i := 0; i < len(pairs); i += 2 {
		if v, ok := pairs[i+1].(float64); ok {
			pairs[i+1] = real(v)
		}
		c[pairs[i].(string)] = pairs[i+1]
	}
}

// real is a number that is written as no integer: transformers 5 refuses a 1 where its
// class has a float.
type real float64

// MarshalJSON writes 1 as 1.0.
func (r real) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(float64(r))
	if err == nil && !bytes.ContainsAny(text, ".e") {
		text = append(text, ".0"...)
	}
	return text, err
}

// rotaryConfig says the rotary embedding twice: rope_theta with rope_scaling
// for transformers 4, rope_parameters for 5.
func rotaryConfig(c map[string]any, m *spec.Model) {
	scaling := map[string]any{"rope_type": "default"}
	switch s := m.RopeScaling; {
	case s != nil:
		scaling = map[string]any{"rope_type": "llama3", "factor": s.Factor, "low_freq_factor": s.LowFreq,
			"high_freq_factor": s.HighFreq, "original_max_position_embeddings": s.OriginalMax}
	case m.RotaryInterpolation > 1:
		scaling = map[string]any{"rope_type": "linear", "factor": m.RotaryInterpolation}
	case m.RopeRule != "":
		scaling = ruleConfig(m.RopeRule)
		if original, ok := scaling["original_max_position_embeddings"]; ok && scaling["rope_type"] == spec.RopeLong {
			c["original_max_position_embeddings"] = original
		}
	}
	parameters := map[string]any{"rope_theta": m.RotaryBase}
	if m.RotaryPercent != 1 || slices.Contains(turnsPart, c["model_type"].(string)) { // some have another default
		parameters["partial_rotary_factor"] = real(m.RotaryPercent)
		put(c, "partial_rotary_factor", m.RotaryPercent)
	}
	for k, v := range scaling {
		parameters[k] = v
	}
	put(c, "rope_theta", m.RotaryBase, "rope_parameters", parameters)
	if scaling["rope_type"] != "default" {
		c["rope_scaling"] = scaling
	}
	if m.WindowRope != "" {
		c["rope_parameters"] = map[string]any{"full_attention": parameters, "sliding_attention": ruleConfig(m.WindowRope)}
	}
}

// ruleConfig is a rule of frequencies as a config.json says it.
func ruleConfig(rule string) map[string]any {
	var c map[string]any
	_ = json.Unmarshal([]byte(rule), &c) // it is the text of a RopeRule
	for name, v := range c {
		if f, is := v.(float64); is && name != "original_max_position_embeddings" {
			c[name] = real(f)
		}
	}
	return c
}

// llamaConfig writes families that differ from Llama in few keys.
func llamaConfig(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	var window any // null: none
	if m.WindowLeft >= 0 {
		window = m.WindowLeft + 1
	}
	family := c["model_type"]
	switch family {
	case Llama, SmolLM3, Qwen3, Olmo2, Qwen3MoE, OLMoE:
		put(c, "attention_bias", m.QKVBias, "mlp_bias", m.LinearBias)
	}
	switch family {
	case Mistral, Mixtral, Phi3:
		c["sliding_window"] = window
	case Starcoder2:
		put(c, "sliding_window", window, "use_bias", m.LinearBias, "norm_epsilon", m.NormEpsilon)
	case SmolLM3:
		put(c, "sliding_window", window, "use_sliding_window", window != nil, "layer_types", perLayer(m, "sliding_attention", "full_attention"), "no_rope_layers", rotating(m))
	case Qwen3MoE:
		put(c, "sliding_window", window, "use_sliding_window", window != nil)
	case Qwen2MoE:
		put(c, "sliding_window", window, "use_sliding_window", window != nil, "layer_types", perLayer(m, "sliding_attention", "full_attention"))
	case GLM4MoE:
		put(c, "attention_bias", m.QKVBias)
	case Qwen2, Qwen3:
		put(c, "sliding_window", window, "use_sliding_window", window != nil, "max_window_layers", 0)
		if m.Windowed != nil {
			c["layer_types"] = perLayer(m, "sliding_attention", "full_attention")
		}
	}
	if m.Experts != nil {
		expertConfig(c, m)
	}
}

// rotating has 1 for each layer that rotates.
func rotating(m *spec.Model) []int {
	list := make([]int, m.NumLayers)
	for i := range list {
		if m.RopeAt(i) {
			list[i] = 1
		}
	}
	return list
}

// perLayer names each layer by whether it has a window.
func perLayer(m *spec.Model, window, full string) []string {
	names := make([]string, m.NumLayers)
	for i := range names {
		if names[i] = full; m.WindowAt(i) >= 0 {
			names[i] = window
		}
	}
	return names
}

// neoTypes is attention_types, in one part a layer.
func neoTypes(m *spec.Model) (types []any) {
	for _, kind := range perLayer(m, "local", "global") {
		types = append(types, []any{[]string{kind}, 1})
	}
	return types
}

package megatron

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"monotron/csrc/device/activations"
	"monotron/internal/exitcode"
	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
)

// Args are Megatron's arguments: the attributes of an argparse.Namespace.
type Args struct{ *pickle.Dict }

// byName ranges over arguments in the order of their names: a namespace keeps the order in which they are set,
// and a checkpoint must have the same bytes whenever it is written.
func byName[T any](values map[string]T) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if !yield(name, values[name]) {
				return
			}
		}
	}
}

// AsArgs takes the namespace out of a checkpoint.
func AsArgs(v pickle.Value) (Args, error) {
	if o, ok := v.(*pickle.Object); ok && o.Attributes() != nil {
		return Args{o.Attributes()}, nil
	}
	return Args{}, fmt.Errorf("args has type %s; it must be a Namespace of Megatron's arguments", pickle.TypeName(v))
}

// Int is an integer argument; missing and None give the default.
func (a Args) Int(name string, missing int) int {
	v, _ := a.Get(name)
	n, ok := pickle.Int(v)
	if !ok || n < math.MinInt32 || n > math.MaxInt32 {
		return missing
	}
	return int(n)
}

// Int64 is Int for counts of samples.
func (a Args) Int64(name string) int64 {
	v, _ := a.Get(name)
	n, _ := pickle.Int(v)
	return n
}

// Float is a number; missing and None give the default.
func (a Args) Float(name string, missing float64) float64 {
	v, _ := a.Get(name)
	if f, ok := pickle.Float(v); ok {
		return f
	}
	return missing
}

// Bool is a flag; missing and None are false.
func (a Args) Bool(name string) bool {
	v, _ := a.Get(name)
	b, _ := v.(bool)
	return b
}

// Text is a string argument; missing and None give the default.
func (a Args) Text(name, missing string) string {
	v, _ := a.Get(name)
	if s, ok := v.(string); ok {
		return s
	}
	return missing
}

const maxLayers, maxDepths = 1 << 16, 1 << 6

// Model is the model that the arguments describe.
func (a Args) Model() (*spec.Model, error) {
	// Arguments of the same name and meaning.
	m := &spec.Model{
		NumLayers: a.Int("num_layers", 0), HiddenSize: a.Int("hidden_size", 0), NumAttentionHeads: a.Int("num_attention_heads", 0),
		FFNHiddenSize: a.Int("ffn_hidden_size", 4*a.Int("hidden_size", 0)),
		VocabSize:     a.Int("vocab_size", a.Int("padded_vocab_size", 0)), Context: a.Int("max_position_embeddings", 0),
		Position: a.Text("position_embedding_type", spec.PositionLearned), RotaryBase: a.Float("rotary_base", 10000), RotaryPercent: a.Float("rotary_percent", 1),
		RotaryInterleaved: a.Bool("rotary_interleaved"), RotaryInterpolation: a.Float("rotary_seq_len_interpolation_factor", 0),
		Normalization: a.Text("normalization", spec.LayerNorm), NormEpsilon: a.Float("layernorm_epsilon", a.Float("norm_epsilon", 1e-5)),
		NormOnePlus: a.Bool("apply_layernorm_1p") || a.Bool("layernorm_zero_centered_gamma"), QKNorm: a.Bool("qk_layernorm"),
		Activation: a.activation(), LinearBias: a.Bool("add_bias_linear"), QKVBias: a.Bool("add_bias_linear") || a.Bool("add_qkv_bias"),
		Tied: !a.Bool("untie_embeddings_and_output_weights"), WindowLeft: -1, EmbedNorm: a.Bool("embed_layernorm"),
		HiddenDropout: a.Float("hidden_dropout", 0.1), AttentionDropout: a.Float("attention_dropout", 0.1), InitStd: a.Float("init_method_std", 0.02),
		ApplyQKLayerScale: a.Bool("apply_query_key_layer_scaling"),
	}
	// Defaults that depend on others.
	m.NumQueryGroups = m.NumAttentionHeads
	if a.Bool("group_query_attention") {
		m.NumQueryGroups = a.Int("num_query_groups", 0)
	}
	m.KVChannels = a.Int("kv_channels", m.HiddenSize/max(1, m.NumAttentionHeads))
	m.PaddedVocabSize = a.Int("padded_vocab_size", m.VocabSize)
	m.EmbeddingInitStd = a.Float("embedding_init_method_std", m.InitStd)
	if m.Position == spec.PositionLearned {
		m.MaxPositions = m.Context
	}
	// Parts that a model has or has not.
	m.RopeScaling = a.ropeScaling()
	if a.Bool("multi_latent_attention") {
		m.Latent = a.latent(m)
		m.KVChannels, m.QKNorm = m.Latent.Channels(), false
	}
	a.windows(m)
	if v, given := a.Get("no_rope_freq"); given && v != nil {
		m.NoRope = a.pattern("no_rope_freq", m, func(layer, n int) bool { return (layer+1)%n == 0 })
	}
	a.rest(m)
	if n := a.Int("mtp_num_layers", 0); n > 0 {
		m.MTP = &spec.MTP{Depths: n, LossScale: a.Float("mtp_loss_scaling_factor", 0.1), Repeated: a.Bool("mtp_use_repeated_layer"), DetachHeads: a.Bool("mtp_detach_heads")}
	}
	if a.Int("num_experts", 0) > 0 {
		m.Experts = a.experts(m)
	}
	return m, a.check(m)
}

func (a Args) activation() string {
	for _, act := range activations.WithFlag() {
		if a.Bool(act.Row().Argument()) {
			return act.String()
		}
	}
	if a.Bool("openai_gelu") || a.Bool("bias_gelu_fusion") {
		return spec.GeluTanh
	}
	return spec.GeluErf
}

// latent is multi-latent attention; m.QKNorm says whether its latents are normalized.
func (a Args) latent(m *spec.Model) *spec.Latent {
	return &spec.Latent{QRank: a.Int("q_lora_rank", 0), KVRank: a.Int("kv_lora_rank", 32), QKDim: a.Int("qk_head_dim", 128), RopeDim: a.Int("qk_pos_emb_head_dim", 64),
		VDim: a.Int("v_head_dim", 128), Norms: m.QKNorm, Yarn: a.Text("rope_type", "yarn") != "rope", Factor: a.Float("rotary_scaling_factor", 1),
		MScale: a.Float("mscale", 1), MScaleAllDim: a.Float("mscale_all_dim", 0),
		OriginalMax: a.Int(yarnOriginalArg, spec.YarnOriginalMax), FastTurns: a.Float(yarnFastArg, spec.YarnFastTurns), SlowTurns: a.Float(yarnSlowArg, spec.YarnSlowTurns)}
}

func (a Args) experts(m *spec.Model) *spec.Experts {
	e := &spec.Experts{Num: a.Int("num_experts", 0), FFNHiddenSize: a.Int("moe_ffn_hidden_size", m.FFNHiddenSize),
		SharedFFN: a.Int("moe_shared_expert_intermediate_size", 0), SharedGate: a.Bool("moe_shared_expert_gate"),
		TopK: a.Int("moe_router_topk", 2), ScoreFunction: a.Text("moe_router_score_function", spec.ScoreSoftmax), PreSoftmax: a.Bool("moe_router_pre_softmax"),
		ScalingFactor: a.Float("moe_router_topk_scaling_factor", 0), NumGroups: a.Int("moe_router_num_groups", 0), GroupTopK: a.Int("moe_router_group_topk", 0), GroupBest: a.Int(groupBestArg, 0),
		RouterDtype: a.Text("moe_router_dtype", ""), ExpertBias: a.Bool("moe_router_enable_expert_bias"), BiasUpdateRate: a.Float("moe_router_bias_update_rate", 0.001),
		ZLossCoeff: a.Float("moe_z_loss_coeff", 0), JitterEps: a.Float("moe_input_jitter_eps", 0), Dispatcher: a.Text("moe_token_dispatcher_type", "allgather"),
		CapacityFactor: a.Float("moe_expert_capacity_factor", 0), PadToCapacity: a.Bool("moe_pad_expert_input_to_capacity"), ProbsOnInput: a.Bool("moe_apply_probs_on_input"), DropPolicy: a.Text("moe_token_drop_policy", "probs")}
	e.Balancing, e.AuxLossCoeff = a.balancing()
	e.Layers = a.pattern("moe_layer_freq", m, func(layer, n int) bool { return layer%n == 0 })
	return e
}

// pattern is the layers that an argument means, by a list or a number and its rule.
func (a Args) pattern(name string, m *spec.Model, rule func(layer, n int) bool) []bool {
	freq, list := a.Int(name, 1), []int64(nil)
	if v, ok := a.Get(name); ok {
		if _, number := pickle.Int(v); !number {
			list, _ = pickle.Ints(v)
		}
	}
	layers := make([]bool, max(0, min(m.NumLayers, maxLayers)))
	for i := range layers {
		layers[i] = list == nil && rule(i, max(1, freq)) || i < len(list) && list[i] != 0
	}
	return layers
}

// windows reads the sliding window and which layers have it.
func (a Args) windows(m *spec.Model) {
	window, _ := a.Get("window_size")
	w, ok := pickle.Ints(window)
	if ok && len(w) == 2 {
		m.WindowLeft = int(w[0])
	}
	if v, given := a.Get("window_attn_skip_freq"); given && v != nil {
		m.Windowed = a.pattern("window_attn_skip_freq", m, func(layer, n int) bool { return (layer+1)%n != 0 })
	}
}

func (a Args) balancing() (kinds []string, coefficients []float64) {
	v, _ := a.Get("moe_router_load_balancing_type")
	if s, ok := v.(string); ok {
		return []string{s}, []float64{a.Float("moe_aux_loss_coeff", 0)}
	}
	items, _ := pickle.Items(v)
	c, _ := a.Get("moe_aux_loss_coeff")
	factors, _ := pickle.Items(c)
	for i, item := range items {
		s, _ := item.(string)
		f := 0.0
		if i < len(factors) {
			f, _ = pickle.Float(factors[i])
		}
		kinds, coefficients = append(kinds, s), append(coefficients, f)
	}
	return kinds, coefficients
}

// Arguments that are counts, and numbers; each may be None or absent.
var (
	counts = []string{"num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "kv_channels", "vocab_size", "padded_vocab_size",
		"max_position_embeddings", "num_experts", "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size", "moe_router_topk"}
	sizes = []string{"tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size", "expert_model_parallel_size",
		"expert_tensor_parallel_size", "data_parallel_size"}
	numbers = []string{"rotary_base", "rotary_percent", "rotary_seq_len_interpolation_factor", "layernorm_epsilon", "norm_epsilon", softmaxScaleArg}
)

// typed refuses values of another type than their argument has: taken for absent,
// they would make another model.
func (a Args) typed() error {
	const most = 1 << 20
	for _, name := range append(append(append([]string{}, counts...), sizes...), numbers...) {
		v, _ := a.Get(name)
		if v == nil {
			continue
		}
		f, ok := pickle.Float(v)
		if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("args.%s is %s, not a number", name, shown(v))
		}
		if slices.Contains(numbers, name) {
			continue
		}
		least, limit := int64(math.MinInt32), int64(math.MaxInt32)
		if slices.Contains(sizes, name) {
			least, limit = 1, most
		}
		if n, ok := pickle.Int(v); !ok || n < least || n > limit {
			return fmt.Errorf("args.%s is %s; it must be an integer from %d to %d", name, shown(v), least, limit)
		}
	}
	return nil
}

func shown(v pickle.Value) string {
	switch v := v.(type) {
	case int64, float64:
		return fmt.Sprint(v)
	case string:
		return fmt.Sprintf("%.40q", v)
	}
	return "of type " + pickle.TypeName(v)
}

// check refuses what no model can be; sizes are then safe to multiply.
func (a Args) check(m *spec.Model) error {
	if err := a.typed(); err != nil {
		return err
	}
	if variant := a.Text("experimental_attention_variant", ""); variant != "" {
		return fmt.Errorf("args.experimental_attention_variant is %q; Megatron checkpoints of such models cannot be read; convert the checkpoint to a Hugging Face folder first", variant)
	}
	// Sizes, each within bounds.
	const most = 1 << 24
	type size struct {
		name            string
		is, least, most int
	}
	bounds := []size{{"num_layers", m.NumLayers, 1, maxLayers}, {"hidden_size", m.HiddenSize, 1, most}, {"ffn_hidden_size", m.FFNHiddenSize, 1, most},
		{"num_attention_heads", m.NumAttentionHeads, 1, most}, {"num_query_groups", m.NumQueryGroups, 1, m.NumAttentionHeads}, {"kv_channels", m.KVChannels, 1, most},
		{"vocab_size", m.VocabSize, 1, most}, {"padded_vocab_size", m.PaddedVocabSize, m.VocabSize, 2 * most}, {"max_position_embeddings", m.MaxPositions, 0, most}}
	if e := m.Experts; e != nil {
		bounds = append(bounds, size{"num_experts", e.Num, 1, maxLayers}, size{"moe_ffn_hidden_size", e.FFNHiddenSize, 1, most},
			size{"moe_shared_expert_intermediate_size", e.SharedFFN, 0, most})
	}
	for _, n := range bounds {
		if n.is < n.least || n.is > n.most {
			return fmt.Errorf("args.%s is %d; it must be from %d to %d", n.name, n.is, n.least, n.most)
		}
	}
	// Predictions and the choice of experts.
	if m.MTP != nil && m.MTP.Depths > maxDepths {
		return fmt.Errorf("args.mtp_num_layers is %d; it must be at most %d", m.MTP.Depths, maxDepths)
	}
	if e := m.Experts; e != nil && !e.Choosable() {
		return fmt.Errorf("args.num_experts %d, moe_router_topk %d, moe_router_num_groups %d, moe_router_group_topk %d: a token cannot choose its experts under these settings", e.Num, e.TopK, e.NumGroups, e.GroupTopK)
	}
	return nil
}

// Layout is how the arguments say the ranks are laid out.
func (a Args) Layout() checkpoint.Layout {
	l := checkpoint.Layout{TP: a.Int("tensor_model_parallel_size", 1), PP: a.Int("pipeline_model_parallel_size", 1), VP: a.Int("virtual_pipeline_model_parallel_size", 1),
		EP: a.Int("expert_model_parallel_size", 1), ETP: a.Int("expert_tensor_parallel_size", 0), DP: a.Int("data_parallel_size", 1),
		DistributedOptimizer: a.Bool("use_distributed_optimizer")}
	return l.Complete()
}

// JSON keeps the arguments for State.Extra: objects with one key "enum" or
// "dtype" stand for Python's.
func (a Args) JSON() json.RawMessage {
	var out bytes.Buffer
	out.WriteByte('{')
	names := []string{}
	seen := map[string]bool{}
	for _, p := range a.Pairs {
		if name, ok := p.Key.(string); ok && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	sort.Strings(names)
	first := true
	for _, name := range names {
		v, _ := a.Get(name)
		text, ok := asJSON(v, 0)
		if !ok {
			continue
		}
		if !first {
			out.WriteByte(',')
		}
		first = false
		key, _ := json.Marshal(name) // a string never fails
		out.Write(key)
		out.WriteByte(':')
		out.WriteString(text)
	}
	out.WriteByte('}')
	return out.Bytes()
}

// asJSON is a value as JSON text; false: it has none. Lists of a pickle may contain themselves, so values that nest
// deeply have none either.
func asJSON(v pickle.Value, depth int) (string, bool) {
	const deepest = 20
	if depth > deepest {
		return "", false
	}
	quote := func(s string) string {
		text, _ := json.Marshal(s) // a string never fails
		return string(text)
	}
	// Scalars as JSON has them; a float keeps a point, so that reading gives a float again.
	switch v := v.(type) {
	case nil:
		return "null", true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return "", false
		}
		text := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(text, ".e") {
			text += ".0"
		}
		return text, true
	case string:
		return quote(v), true
	// What JSON does not have is an object with one key.
	case pickle.DType:
		return `{"dtype":` + quote(string(v)) + `}`, true
	case *pickle.List, *pickle.Tuple:
		items, _ := pickle.Items(v)
		parts := make([]string, len(items))
		for i, item := range items {
			var ok bool
			if parts[i], ok = asJSON(item, depth+1); !ok {
				return "", false
			}
		}
		return "[" + strings.Join(parts, ",") + "]", true
	case *pickle.Object:
		if len(v.Args) == 1 && v.State == nil {
			if inner, ok := asJSON(v.Args[0], depth+1); ok {
				return `{"enum":` + quote(v.Class) + `,"value":` + inner + `}`, true
			}
		}
	}
	return "", false
}

// FromJSON is the way back; it is a fresh, empty set where text is none.
func FromJSON(text json.RawMessage) (Args, error) {
	a := Args{&pickle.Dict{}}
	if len(text) == 0 {
		return a, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var all map[string]any
	if err := d.Decode(&all); err != nil {
		return a, exitcode.Errorf(exitcode.BadData, "Megatron's arguments in the checkpoint cannot be read: %w", err)
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		a.Set(name, fromJSON(all[name]))
	}
	return a, nil
}

func fromJSON(v any) pickle.Value {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // what was written
		return f
	case []any:
		l := &pickle.List{}
		for _, item := range v {
			l.Items = append(l.Items, fromJSON(item))
		}
		return l
	case map[string]any:
		if s, ok := v["dtype"].(string); ok {
			return pickle.DType(s)
		}
		if s, ok := v["enum"].(string); ok {
			return &pickle.Object{Class: s, Args: []pickle.Value{fromJSON(v["value"])}}
		}
		return nil
	}
	return v
}

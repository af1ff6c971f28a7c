package megatron

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"monotron/csrc/device/activations"
	"monotron/internal/pickle"
	"monotron/megatron/spec"
)

// modelArgs are the arguments that say which model m is.
func modelArgs(m *spec.Model) []pickle.Pair {
	n := func(v int) pickle.Value { return int64(v) }
	grouped := m.NumQueryGroups != m.NumAttentionHeads
	groups, context := 1, m.Context
	if grouped {
		groups = m.NumQueryGroups
	}
	if m.Position == spec.PositionLearned {
		context = m.MaxPositions
	}
	// Arguments that every model has.
	d := pickle.NewDict("num_layers", n(m.NumLayers), "hidden_size", n(m.HiddenSize), "ffn_hidden_size", n(m.FFNHiddenSize),
		"num_attention_heads", n(m.NumAttentionHeads), "group_query_attention", grouped, "num_query_groups", n(groups), "kv_channels", n(m.KVChannels),
		"vocab_size", n(m.VocabSize), "padded_vocab_size", n(m.PaddedVocabSize), "max_position_embeddings", n(context),
		"position_embedding_type", m.Position, "rotary_percent", m.RotaryPercent, "rotary_interleaved", m.RotaryInterleaved,
		"normalization", m.Normalization, "layernorm_epsilon", m.NormEpsilon, "norm_epsilon", m.NormEpsilon, "apply_layernorm_1p", m.NormOnePlus,
		"qk_layernorm", m.QKNorm,
		"bias_gelu_fusion", m.Activation == spec.GeluTanh, "openai_gelu", false, "add_bias_linear", m.LinearBias, "add_qkv_bias", m.QKVBias,
		"untie_embeddings_and_output_weights", !m.Tied, "hidden_dropout", m.HiddenDropout, "attention_dropout", m.AttentionDropout, "init_method_std", m.InitStd,
		"apply_query_key_layer_scaling", m.ApplyQKLayerScale, "use_rope_scaling", m.RopeScaling != nil)
	for _, a := range activations.WithFlag() {
		d.Set(a.Row().Argument(), m.Activation == a.String())
	}
	// Position, and what only some models have; Megatron reads an absent argument as off.
	if base := int64(m.RotaryBase); float64(base) == m.RotaryBase {
		d.Set("rotary_base", base)
	} else {
		d.Set("rotary_base", m.RotaryBase)
	}
	if m.RotaryInterpolation > 1 {
		d.Set("rotary_seq_len_interpolation_factor", m.RotaryInterpolation)
	}
	if m.RopeScaling != nil {
		ropeScalingArgs(d, m.RopeScaling)
	}
	if m.Latent != nil {
		latentArgs(d, m)
	}
	if m.EmbedNorm {
		d.Set("embed_layernorm", true) // Megatron-DeepSpeed's name
	}
	if m.WindowLeft >= 0 {
		d.Set("window_size", &pickle.Tuple{Items: []pickle.Value{n(m.WindowLeft), int64(0)}})
	}
	if m.Windowed != nil {
		list, _ := pattern(m.Windowed)
		d.Set("window_attn_skip_freq", list)
	}
	if d.Set("no_rope_freq", nil); m.NoRope != nil {
		list, _ := pattern(m.NoRope)
		d.Set("no_rope_freq", list)
	}
	restArgs(d, m)
	mtpArgs(d, m.MTP)
	expertArgs(d, m)
	return d.Pairs
}

// mtpArgs sets the arguments of multi-token prediction; nil: there is none.
func mtpArgs(d *pickle.Dict, p *spec.MTP) {
	if d.Set("mtp_num_layers", nil); p == nil {
		return
	}
	d.Set("mtp_num_layers", int64(p.Depths))
	d.Set("mtp_loss_scaling_factor", p.LossScale)
	d.Set("mtp_use_repeated_layer", p.Repeated)
	d.Set("mtp_detach_heads", p.DetachHeads)
}

// latentArgs sets the arguments of multi-latent attention.
func latentArgs(d *pickle.Dict, m *spec.Model) {
	l, n := m.Latent, func(v int) pickle.Value { return int64(v) }
	d.Set("multi_latent_attention", true)
	d.Set("kv_channels", n(m.HiddenSize/m.NumAttentionHeads)) // which it then does not read
	d.Set("qk_layernorm", l.Norms)
	d.Set("q_lora_rank", nil)
	if l.QRank > 0 {
		d.Set("q_lora_rank", n(l.QRank))
	}
	d.Set("kv_lora_rank", n(l.KVRank))
	d.Set("qk_head_dim", n(l.QKDim))
	d.Set("qk_pos_emb_head_dim", n(l.RopeDim))
	d.Set("v_head_dim", n(l.VDim))
	d.Set("rope_type", "rope")
	if l.Yarn {
		d.Set("rope_type", "yarn")
	}
	d.Set("rotary_scaling_factor", l.Factor)
	d.Set("mscale", l.MScale)
	d.Set("mscale_all_dim", l.MScaleAllDim)
	if l.OwnRamp() {
		d.Set(yarnOriginalArg, n(l.OriginalMax))
		d.Set(yarnFastArg, l.FastTurns)
		d.Set(yarnSlowArg, l.SlowTurns)
	}
}

// Megatron has one number for the scaling of RoPE; the other three are its code's.
// Where they differ they are saved under names of ours, which it does not read.
const (
	groupBestArg = "monotron_moe_router_group_best"

	lowFreqArg, highFreqArg, originalArg = "monotron_rope_low_freq_factor", "monotron_rope_high_freq_factor", "monotron_rope_original_positions"

	megatronFactor = 8

	yarnOriginalArg, yarnFastArg, yarnSlowArg = "monotron_yarn_original_positions", "monotron_yarn_beta_fast", "monotron_yarn_beta_slow"
)

func ropeScalingArgs(d *pickle.Dict, s *spec.RopeScaling) {
	d.Set("rope_scaling_factor", s.Factor)
	if !s.IsLlama3() {
		d.Set(lowFreqArg, s.LowFreq)
		d.Set(highFreqArg, s.HighFreq)
		d.Set(originalArg, int64(s.OriginalMax))
	}
}

// What Megatron's models do not have is saved under names that it does not read.
const (
	softmaxScaleArg, normAfterArg, parallelArg, qkFullArg, noQKVBiasArg = "monotron_softmax_scale", "monotron_norm_after", "monotron_parallel_residual", "monotron_qk_layernorm_whole", "monotron_disable_qkv_bias"
)

func restArgs(d *pickle.Dict, m *spec.Model) {
	if m.SoftmaxScale != 0 {
		d.Set(softmaxScaleArg, m.SoftmaxScale)
	}
	on := func(name string, is bool) {
		if is {
			d.Set(name, true)
		}
	}
	on(normAfterArg, m.NormAfter)
	on(parallelArg, m.ParallelResidual)
	on(qkFullArg, m.QKNormFull)
	on(noQKVBiasArg, m.LinearBias && !m.QKVBias)
	for _, p := range spec.Parts() {
		if value, given := p.Value(m); given {
			if n, count := value.(int); count {
				value = int64(n)
			}
			if p.Word != "" {
				value = p.Word
			}
			d.Set(partArg(&p), value)
		}
	}
}

// partArg is the argument of a part: Megatron's, or one that it does not read.
func partArg(p *spec.Part) string {
	name := strings.ReplaceAll(p.Flag, "-", "_")
	if p.Mine {
		return "monotron_" + name
	}
	return name
}

// parts reads the settings that only some families have.
func (a Args) parts(m *spec.Model) {
	for _, p := range spec.Parts() {
		name := partArg(&p)
		switch to := p.Of(m).(type) {
		case *bool:
			*to = a.Bool(name)
			if p.Word != "" {
				*to = a.Text(name, "") == p.Word
			}
		case *int:
			*to = a.Int(name, 0)
		case *float64:
			*to = a.Float(name, 0)
		case *string:
			*to = a.Text(name, "")
		}
	}
}

func (a Args) rest(m *spec.Model) {
	m.SoftmaxScale = a.Float(softmaxScaleArg, 0)
	m.ParallelResidual = a.Bool(parallelArg)
	m.NormAfter, m.QKNormFull = a.Bool(normAfterArg), m.QKNorm && a.Bool(qkFullArg)
	m.QKVBias = m.QKVBias && !a.Bool(noQKVBiasArg)
	a.parts(m)
}

// restNote says what of a model Megatron does not have.
func restNote(m *spec.Model) (note string, differs bool) {
	var lacks []string
	for _, has := range []struct {
		is   bool
		what string
	}{{m.SoftmaxScale != 0, "a custom softmax scale"}, {m.NormAfter, "norms after attention and MLP"}, {m.ParallelResidual, "attention and MLP in parallel"}, {m.QKNormFull, "norms of all heads together"},
		{m.Latent != nil && m.Latent.OwnRamp(), "a YaRN range other than 4096 positions, beta_fast 32 and beta_slow 1"},
		{m.LinearBias && !m.QKVBias, "biases of all linear layers but QKV"}} {
		if has.is {
			lacks = append(lacks, has.what)
		}
	}
	for _, p := range spec.Parts() {
		if _, given := p.Value(m); given && p.Mine {
			lacks = append(lacks, p.What)
		}
	}
	return "the model has " + strings.Join(lacks, ", ") + ": Megatron-LM cannot run this model, but monotron can read all of it back", len(lacks) > 0
}

func (a Args) ropeScaling() *spec.RopeScaling {
	if !a.Bool("use_rope_scaling") {
		return nil
	}
	return &spec.RopeScaling{Factor: a.Float("rope_scaling_factor", megatronFactor), LowFreq: a.Float(lowFreqArg, spec.Llama3LowFreq),
		HighFreq: a.Float(highFreqArg, spec.Llama3HighFreq), OriginalMax: a.Int(originalArg, spec.Llama3OriginalMax)}
}

// ropeNote says where Megatron would run the model with other frequencies.
func ropeNote(s *spec.RopeScaling) (note string, differs bool) {
	if s == nil || *s == (spec.RopeScaling{Factor: megatronFactor, LowFreq: spec.Llama3LowFreq, HighFreq: spec.Llama3HighFreq, OriginalMax: spec.Llama3OriginalMax}) {
		return "", false
	}
	return fmt.Sprintf("RoPE is scaled by factor %g, low %g, high %g, from %d positions; Megatron-LM's --use-rope-scaling supports only factor %d, low %d, high %d, from %d: "+
		"Megatron-LM would compute different numbers, but monotron can read all values back", s.Factor, s.LowFreq, s.HighFreq, s.OriginalMax, megatronFactor, spec.Llama3LowFreq, spec.Llama3HighFreq, spec.Llama3OriginalMax), true
}

func expertArgs(d *pickle.Dict, m *spec.Model) {
	e := m.Experts
	if e == nil {
		d.Set("num_experts", nil)
		return
	}
	// Experts and router.
	d.Set("num_experts", int64(e.Num))
	d.Set("moe_ffn_hidden_size", int64(e.FFNHiddenSize))
	d.Set("moe_router_topk", int64(e.TopK))
	d.Set("moe_router_score_function", e.ScoreFunction)
	d.Set("moe_router_pre_softmax", e.PreSoftmax)
	d.Set("moe_router_enable_expert_bias", e.ExpertBias)
	d.Set("moe_shared_expert_intermediate_size", orNone(e.SharedFFN))
	d.Set("moe_shared_expert_gate", e.SharedGate)
	d.Set("moe_router_num_groups", orNone(e.NumGroups))
	if e.GroupBest > 0 {
		d.Set(groupBestArg, int64(e.GroupBest)) // a name of ours, which Megatron does not read
	}
	d.Set("moe_router_group_topk", orNone(e.GroupTopK))
	d.Set("moe_router_bias_update_rate", e.BiasUpdateRate)
	// Dispatch and capacity.
	d.Set("moe_apply_probs_on_input", e.ProbsOnInput)
	d.Set("moe_token_dispatcher_type", e.Dispatcher)
	d.Set("moe_token_drop_policy", e.DropPolicy)
	d.Set("moe_pad_expert_input_to_capacity", e.PadToCapacity)
	for name, v := range byName(map[string]float64{"moe_router_topk_scaling_factor": e.ScalingFactor, "moe_z_loss_coeff": e.ZLossCoeff,
		"moe_input_jitter_eps": e.JitterEps, "moe_expert_capacity_factor": e.CapacityFactor}) {
		if d.Set(name, nil); v != 0 {
			d.Set(name, v)
		}
	}
	if d.Set("moe_router_dtype", nil); e.RouterDtype != "" {
		d.Set("moe_router_dtype", e.RouterDtype)
	}
	balancingArgs(d, e)
	list, all := pattern(e.Layers)
	if d.Set("moe_layer_freq", int64(1)); !all {
		d.Set("moe_layer_freq", list)
	}
}

// pattern is a list of 0 and 1, one a layer, and whether all are 1.
func pattern(layers []bool) (list *pickle.List, all bool) {
	all, list = true, &pickle.List{}
	for _, on := range layers {
		all = all && on
		list.Items = append(list.Items, map[bool]int64{true: 1}[on])
	}
	return list, all
}

// balancingArgs says one kind of balancing plainly, several as lists.
func balancingArgs(d *pickle.Dict, e *spec.Experts) {
	if len(e.Balancing) == 1 && len(e.AuxLossCoeff) == 1 {
		d.Set("moe_router_load_balancing_type", e.Balancing[0])
		d.Set("moe_aux_loss_coeff", e.AuxLossCoeff[0])
		return
	}
	kinds, coefficients := &pickle.List{}, &pickle.List{}
	for i, kind := range e.Balancing {
		kinds.Items = append(kinds.Items, kind)
		if i < len(e.AuxLossCoeff) {
			coefficients.Items = append(coefficients.Items, e.AuxLossCoeff[i])
		}
	}
	d.Set("moe_router_load_balancing_type", kinds)
	d.Set("moe_aux_loss_coeff", coefficients)
}

// scalar is an f32 tensor of one element.
func scalar(v float64, shape ...int64) *pickle.Tensor {
	var raw [4]byte
	binary.LittleEndian.PutUint32(raw[:], math.Float32bits(float32(v)))
	return pickle.Constant("F32", append([]int64{}, shape...), raw[:])
}

func float64frombytes(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }

package megatron

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
	"monotron/tokenizer"
)

// writtenBy is an argument that Megatron does not have, and names this program.
const writtenBy = "written_by"

// ReadState takes everything but the tensors out of a rank's (or torch_dist's
// common) dict.
func ReadState(root *pickle.Dict, a Args) checkpoint.State {
	iteration, _ := root.Get("iteration")
	n, _ := pickle.Int(iteration)
	s := checkpoint.State{Iteration: max(0, n), ConsumedTrain: max(0, a.Int64("consumed_train_samples")), ConsumedValid: max(0, a.Int64("consumed_valid_samples")),
		SkippedTrain: max(0, a.Int64("skipped_train_samples")), Seed: uint64(max(0, a.Int64("seed"))), Version: a.Text(writtenBy, checkpoint.MegatronLM), Extra: map[string]json.RawMessage{}}
	s.Extra[checkpoint.ExtraArgs] = a.JSON()
	if v, ok := root.Get("num_floating_point_operations_so_far"); ok {
		if text, ok := asJSON(v, 0); ok {
			s.Extra[checkpoint.ExtraFLOPs] = json.RawMessage(text)
		}
	}
	if scheduler, ok := root.Get("opt_param_scheduler"); ok {
		if text, ok := asObject(scheduler); ok {
			s.Scheduler = text
		}
	}
	return s
}

// asObject is a dict of plain values as JSON.
func asObject(v pickle.Value) (json.RawMessage, bool) {
	d, ok := v.(*pickle.Dict)
	if !ok {
		return nil, false
	}
	return Args{d}.JSON(), true
}

// ReadScaler keeps a grad_scaler: {scale: f32[1], growth_tracker, hysteresis_tracker}.
func ReadScaler(v pickle.Value) (json.RawMessage, error) {
	d, ok := v.(*pickle.Dict)
	if !ok {
		return nil, fmt.Errorf("grad_scaler has type %s; it must be a dict", pickle.TypeName(v))
	}
	flat := &pickle.Dict{}
	for _, p := range d.Pairs {
		t, ok := p.Value.(*pickle.Tensor)
		if !ok {
			flat.Pairs = append(flat.Pairs, p)
			continue
		}
		if t.DType != "F32" || t.Len() != 1 {
			return nil, fmt.Errorf("grad_scaler contains a tensor %s%v; tensors in it must be F32 with one element", t.DType, t.Shape)
		}
		raw, err := t.Read()
		if err != nil {
			return nil, fmt.Errorf("grad_scaler: %w", err)
		}
		one := make([]byte, 8)
		if err := checkpoint.Convert(one, "F64", raw, "F32"); err != nil {
			return nil, err
		}
		flat.Pairs = append(flat.Pairs, pickle.Pair{Key: p.Key, Value: float64frombytes(one)})
	}
	return Args{flat}.JSON(), nil
}

// ReadSteps takes the number of updates out of param_groups, or out of the
// states of torch's own AdamW; ok is false where neither says.
func ReadSteps(optimizer *pickle.Dict) (steps int64, ok bool) {
	groups, _ := optimizer.Get("param_groups")
	items, _ := pickle.Items(groups)
	for _, g := range items {
		if d, isDict := g.(*pickle.Dict); isDict {
			if v, has := d.Get("step"); has {
				if n, isInt := pickle.Int(v); isInt {
					return n, true
				}
			}
		}
	}
	state, _ := optimizer.Get("state")
	if d, isDict := state.(*pickle.Dict); isDict {
		if v, has := d.Get("common_step"); has {
			return stepOf(v)
		}
		for _, p := range d.Pairs {
			if one, isDict := p.Value.(*pickle.Dict); isDict {
				if v, has := one.Get("step"); has {
					return stepOf(v)
				}
			}
		}
	}
	return 0, false
}

// stepOf reads a step that is a number or an f32 scalar.
func stepOf(v pickle.Value) (int64, bool) {
	if t, ok := v.(*pickle.Tensor); ok && t.DType == "F32" && t.Len() == 1 {
		raw, err := t.Read()
		one := make([]byte, 8)
		if err != nil || checkpoint.Convert(one, "F64", raw, "F32") != nil {
			return 0, false
		}
		return int64(float64frombytes(one)), true
	}
	return pickle.Int(v)
}

// SetSteps keeps the number of updates in a state.
func SetSteps(s *checkpoint.State, n int64) {
	text, _ := json.Marshal(n) // a number never fails
	s.Extra[checkpoint.ExtraAdamSteps] = text
}

// Target is everything that a writer of Megatron's formats needs in addition to tensors.
type Target struct {
	Model     *spec.Model // with the layout's padded vocabulary
	Args      Args
	Layout    checkpoint.Layout
	State     checkpoint.State
	Scheduler *pickle.Dict // nil: none
	Scaler    *pickle.Dict // numbers; nil: none
	Steps     int64
	optimizer optimizerSettings
	tokenizer tokenizer.Config // zero: not known
	noFiles   bool             // of the tokenizer
}

// optimizerSettings are what param_groups repeat of the run's arguments.
type optimizerSettings struct {
	LR, MinLR            float64
	AdamBeta1, AdamBeta2 float64
	AdamEps, WeightDecay float64
}

// NewTarget reads src's state as Megatron's; precision is the type of its values.
func NewTarget(src checkpoint.Source, o checkpoint.WriteOptions, precision string) (*Target, error) {
	info, state := src.Info(), src.State()
	if info.Model == nil || info.Model.NumLayers == 0 {
		return nil, exitcode.Errorf(exitcode.BadData, "%s does not describe its model, but Megatron's formats need such a description", info.Path)
	}
	if info.Model.KeepsState() || info.Model.Sublayers != nil {
		return nil, exitcode.Errorf(exitcode.Usage, "Megatron's formats cannot store gated delta nets (--experimental-attention-variant), short convolutions (--short-conv-freq), state-space scans (--mamba-layer-freq) or layers with one sublayer (--hybrid-layer-pattern); use the format native or hf")
	}
	if e := info.Model.Experts; e != nil && e.LatentSize > 0 {
		return nil, exitcode.Errorf(exitcode.Usage, "Megatron's formats cannot store projections around experts (--moe-latent-size); use the format native or hf")
	}
	if info.Model.LayersDiffer() {
		return nil, exitcode.Errorf(exitcode.Usage, "Megatron's formats cannot store layers of different shapes or with scalars (Gemma 4); use the format native or hf")
	}
	// Arguments of the run that the state is from, with what the command line changes.
	kept, err := FromJSON(state.Extra[checkpoint.ExtraArgs])
	if err != nil {
		return nil, err
	}
	t := &Target{Args: kept, Layout: o.Layout.Complete(), State: state, tokenizer: info.Tokenizer, noFiles: o.NoTokenizerFiles}
	if err := t.Args.setSpecials(info.Specials); err != nil {
		return nil, err
	}
	if o.TransformerImpl != "" {
		t.Args.Set("transformer_impl", o.TransformerImpl)
	}
	if o.GroupedExperts {
		if impl := t.Args.Text("transformer_impl", "local"); impl == "local" {
			return nil, exitcode.Errorf(exitcode.Usage, "--moe-grouped-gemm needs --transformer-impl transformer_engine")
		}
		t.Args.Set("moe_grouped_gemm", true)
	}
	t.Layout.DP = max(t.Layout.DP, (t.Layout.EP*t.Layout.ETP+t.Layout.TP-1)/t.Layout.TP) // experts are spread over these
	// Scheduler, loss scale and Adam's count of steps.
	for _, part := range []struct {
		text json.RawMessage
		to   **pickle.Dict
	}{{state.Scheduler, &t.Scheduler}, {state.Scaler, &t.Scaler}} {
		if len(part.text) == 0 {
			continue
		}
		d, err := FromJSON(part.text)
		if err != nil {
			return nil, err
		}
		*part.to = d.Dict
	}
	if text := state.Extra[checkpoint.ExtraAdamSteps]; len(text) > 0 {
		if err := json.Unmarshal(text, &t.Steps); err != nil {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: the count of optimizer steps cannot be read: %w", info.Path, err)
		}
	}
	// The padded vocabulary depends on the tensor-parallel size, other arguments on both.
	t.settings(state)
	if err := t.pad(src, o.VocabDivisor); err != nil {
		return nil, err
	}
	t.fillArgs(info, precision)
	return t, Check(t.Model, t.Layout)
}

// pad sizes the vocabulary as a run of this layout will want it.
func (t *Target) pad(src checkpoint.Source, divisor int) error {
	var run struct{ VocabDivisor, PaddedVocab int } // --make-vocab-size-divisible-by, --padded-vocab-size
	_ = json.Unmarshal(t.State.Config, &run)        // another program's Config says nothing here
	if divisor == 0 {
		divisor = max(1, t.Args.Int("make_vocab_size_divisible_by", cmp.Or(run.VocabDivisor, 128)))
		t.Args.fallback("make_vocab_size_divisible_by", int64(divisor))
	} else {
		t.Args.Set("make_vocab_size_divisible_by", int64(divisor))
		run.PaddedVocab = 0
	}
	m := *src.Info().Model
	m.PaddedVocabSize = spec.PadVocab(m.VocabSize, divisor, t.Layout.TP)
	if run.PaddedVocab >= m.VocabSize {
		m.PaddedVocabSize = spec.PadVocab(run.PaddedVocab, 1, t.Layout.TP)
	}
	for _, have := range src.Tensors() {
		if have.Name == checkpoint.Model+checkpoint.WordEmbeddings && have.Shape[0] > int64(m.VocabSize) {
			m.PaddedVocabSize = max(m.PaddedVocabSize, int(have.Shape[0])) // the source shows its padding rows
		}
	}
	if m.PaddedVocabSize < m.VocabSize || m.PaddedVocabSize > math.MaxInt32 {
		return exitcode.Errorf(exitcode.Usage, "a vocabulary of %d ids cannot be padded to a multiple of %d times %d ranks", m.VocabSize, divisor, t.Layout.TP)
	}
	t.Model = &m
	return nil
}

// settings come from Megatron's arguments where there are some, else from the
// Config of a native run, else they are Megatron's defaults.
func (t *Target) settings(state checkpoint.State) {
	var native struct {
		Optimizer struct{ LR, MinLR, AdamBeta1, AdamBeta2, AdamEps, WeightDecay *float64 }
	}
	_ = json.Unmarshal(state.Config, &native) // another program's Config says nothing here
	take := func(name string, kept *float64, missing float64) float64 {
		if kept != nil {
			missing = *kept
		}
		return t.Args.Float(name, missing)
	}
	o := native.Optimizer
	t.optimizer = optimizerSettings{LR: take("lr", o.LR, 1e-4), MinLR: take("min_lr", o.MinLR, 0), AdamBeta1: take("adam_beta1", o.AdamBeta1, 0.9),
		AdamBeta2: take("adam_beta2", o.AdamBeta2, 0.999), AdamEps: take("adam_eps", o.AdamEps, 1e-8), WeightDecay: take("weight_decay", o.WeightDecay, 0.01)}
	if t.Scheduler != nil {
		s := Args{t.Scheduler}
		t.optimizer.LR, t.optimizer.MinLR = s.Float("max_lr", t.optimizer.LR), s.Float("min_lr", t.optimizer.MinLR)
		t.optimizer.WeightDecay = s.Float("end_wd", t.optimizer.WeightDecay)
	}
}

// ParamGroup is an entry of param_groups, with ids where a torch optimizer has them.
func (t *Target) ParamGroup(g Group, ids []int64) *pickle.Dict {
	o := t.optimizer
	mult, decay := 0.0, 0.0
	if g.Decay {
		mult, decay = 1, o.WeightDecay
	}
	d := pickle.NewDict("is_expert_parallel", g.Expert, "default_config", true, "wd_mult", mult, "lr_mult", 1.0, "is_decoupled_lr", false,
		"max_lr", o.LR, "min_lr", o.MinLR, "lr", o.LR, "bias_correction", true,
		"betas", &pickle.Tuple{Items: []pickle.Value{o.AdamBeta1, o.AdamBeta2}}, "eps", o.AdamEps, "weight_decay", decay, "step", t.Steps)
	if ids != nil {
		list := &pickle.List{}
		for _, id := range ids {
			list.Items = append(list.Items, id)
		}
		d.Set("params", list)
	}
	return d
}

// Step is the count of updates as torch's own AdamW keeps it with the moments of
// each parameter, a tensor that it counts up in place; nil where Transformer
// Engine's optimizer is used, which takes no state that it does not know.
// Without the distributed optimizer Megatron hands the states on as they are.
func (t *Target) Step() *pickle.Tensor {
	if t.Layout.DistributedOptimizer || t.Args.Text("transformer_impl", "local") == "transformer_engine" {
		return nil
	}
	return scalar(float64(t.Steps))
}

// GradScaler is the loss scale as Megatron keeps it; nil: none.
func (t *Target) GradScaler() *pickle.Dict {
	if t.Scaler == nil {
		return nil
	}
	a := Args{t.Scaler}
	scale := a.Float("scale", 0)
	if scale <= 0 {
		return nil
	}
	return pickle.NewDict("scale", scalar(scale, 1), "growth_tracker", a.Int64("growth_tracker"), "hysteresis_tracker", a.Int64("hysteresis_tracker"))
}

// fillArgs sets what describes model, layout and progress; other arguments
// stay as they were found.
func (t *Target) fillArgs(info checkpoint.Info, precision string) {
	t.dropNewEnums()
	// The model, then the layout; those of a list above take their order from it.
	m, l, a := t.Model, t.Layout, t.Args
	for _, p := range modelArgs(m) {
		a.Set(p.Key.(string), p.Value)
	}
	var virtual, seq pickle.Value
	if l.VP > 1 {
		virtual = int64(l.VP)
	}
	if seq = int64(info.SeqLength); info.SeqLength == 0 {
		seq = int64(m.Context)
	}
	set := func(name string, v pickle.Value) { a.Set(name, v) }
	for name, n := range byName(map[string]int{"tensor_model_parallel_size": l.TP, "pipeline_model_parallel_size": l.PP, "transformer_pipeline_model_parallel_size": l.PP,
		"expert_model_parallel_size": l.EP, "expert_tensor_parallel_size": l.ETP, "context_parallel_size": 1, "data_parallel_size": l.DP, "world_size": l.TP * l.PP * l.DP}) {
		set(name, int64(n))
	}
	set("virtual_pipeline_model_parallel_size", virtual)
	set("decoder_first_pipeline_num_layers", orNone(l.FirstStage))
	set("decoder_last_pipeline_num_layers", orNone(l.LastStage))
	set("use_distributed_optimizer", l.DistributedOptimizer)
	// Precision and progress.
	set("bf16", precision == "BF16")
	set("fp16", precision == "F16")
	set("params_dtype", pickle.DType(map[string]string{"BF16": "bfloat16", "F16": "float16"}[precision]))
	if precision != "BF16" && precision != "F16" {
		set("params_dtype", pickle.DType("float32"))
	}
	set("iteration", t.State.Iteration)
	set("consumed_train_samples", t.State.ConsumedTrain)
	set("consumed_valid_samples", t.State.ConsumedValid)
	set("skipped_train_samples", t.State.SkippedTrain)
	if order, ok := t.State.Extra[checkpoint.ExtraOrder]; ok {
		set(checkpoint.ExtraOrder, string(order))
	}
	set(writtenBy, writer(t.State.Version))
	// What Megatron wants to find but does not check.
	a.fallback("seq_length", seq)
	a.fallback("tokenizer_type", "NullTokenizer")
	a.fallback("seed", int64(t.State.Seed))
	a.fallback("optimizer", "adam")
	a.fallback("adam_beta1", t.optimizer.AdamBeta1)
	a.fallback("adam_beta2", t.optimizer.AdamBeta2)
	a.fallback("adam_eps", t.optimizer.AdamEps)
	a.fallback("lr", t.optimizer.LR)
	a.fallback("min_lr", t.optimizer.MinLR)
	a.fallback("weight_decay", t.optimizer.WeightDecay)
}

// dropNewEnums leaves out arguments whose classes only some versions have: a
// Megatron without one of them cannot read the file at all, and none reads
// them from a checkpoint.
func (t *Target) dropNewEnums() {
	common := map[string]bool{"megatron.core.enums.ModelType": true, "megatron.core.transformer.enums.AttnBackend": true, "signal.Signals": true}
	kept := &pickle.Dict{}
	for _, p := range t.Args.Pairs {
		if o, ok := p.Value.(*pickle.Object); !ok || common[o.Class] {
			kept.Pairs = append(kept.Pairs, p)
		}
	}
	t.Args = Args{kept}
}

// writer is what writtenBy says of a state that a version of this program has made, or another program.
func writer(version string) string {
	const ours = "monotron"
	switch {
	case version == "" || version == checkpoint.MegatronLM:
		return ours
	case strings.HasPrefix(version, ours):
		return version
	}
	return ours + " " + version
}

func (a Args) fallback(name string, v pickle.Value) {
	if _, ok := a.Get(name); !ok {
		a.Set(name, v)
	}
}

func orNone(n int) pickle.Value {
	if n == 0 {
		return nil
	}
	return int64(n)
}

// Namespace is the arguments as Megatron stores them.
func (t *Target) Namespace() *pickle.Object {
	return &pickle.Object{Class: "argparse.Namespace", New: true, State: &pickle.Dict{Pairs: t.Args.Pairs}}
}

// FLOPs is num_floating_point_operations_so_far; 0 where it is not known.
func (t *Target) FLOPs() pickle.Value {
	n := 0.0
	_ = json.Unmarshal(t.State.Extra[checkpoint.ExtraFLOPs], &n) // another program's count says nothing here
	return n
}

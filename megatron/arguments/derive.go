package arguments

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"monotron/csrc/device/activations"
	"monotron/dataset"
	"monotron/internal/argv"
	"monotron/megatron/arguments/table"
	"monotron/megatron/config"
	"monotron/megatron/optimizer"
	"monotron/megatron/spec"
	"monotron/tokenizer"
)

// derive completes the Config from what was given and checks it together: the
// rules of Megatron's validate_args (megatron/training/arguments.py).
func (p *parser) derive() {
	p.recordedTokenizer()
	p.deriveShape()
	p.deriveActivation()
	p.derivePositions()
	p.deriveExperts()
	p.deriveTuning()
	p.deriveMTP()
	p.hybridChecks()
	p.deriveLayout()
	p.derivePrecision()
	p.deriveBatch()
	p.checkMismatched()
	p.checkGroups()
	p.deriveLength()
	p.deriveOptimizer()
	p.deriveFP8()
	p.deriveInvariant()
	p.deriveRecompute()
	p.checkSharedOverlap()
	p.deriveCheckpoint()
	p.deriveData()
	p.deriveReport()
	p.noteIdle()
	p.noteDoubts()
	p.checkVolume()
}

// checkVolume refuses a model whose tensors could not even be counted in 64 bits.
func (p *parser) checkVolume() {
	m := &p.Model
	width := float64(m.HiddenSize)
	rows := float64(max(m.PaddedVocabSize, p.Tokenizer.VocabSize, p.PaddedVocab) + m.MaxPositions)
	layer := float64(m.NumAttentionHeads+m.NumQueryGroups)*float64(m.KVChannels) + 1.5*float64(m.FFNHiddenSize)
	const most = 1 << 50
	if e := m.Experts; e != nil {
		latent := float64(e.LatentSize)
		expert := 3 * max(width, latent) * float64(e.FFNHiddenSize)
		if n := float64(m.AllLayers()) * (float64(e.Num)*expert + 2*width*latent + 3*width*float64(e.SharedFFN)); n > most {
			p.clash("num-layers hidden-size num-experts moe-ffn-hidden-size moe-latent-size moe-shared-expert-intermediate-size",
				"the experts would have about %.1e parameters; no machine can store that; reduce --num-layers %d, --hidden-size %d, --num-experts %d, --moe-ffn-hidden-size %d, --moe-latent-size %d or --moe-shared-expert-intermediate-size %d",
				n, m.NumLayers, m.HiddenSize, e.Num, e.FFNHiddenSize, e.LatentSize, e.SharedFFN)
		}
	}
	if n := width * (rows + 2*layer*float64(m.AllLayers())); n > most {
		p.clash("num-layers hidden-size num-attention-heads ffn-hidden-size kv-channels vocab-size max-position-embeddings",
			"the model would have about %.1e parameters; no machine can store that; reduce --num-layers %d, --hidden-size %d, --num-attention-heads %d, --kv-channels %d, --ffn-hidden-size %d, or --vocab-size and --max-position-embeddings (together %.0f rows)",
			n, m.NumLayers, m.HiddenSize, m.NumAttentionHeads, m.KVChannels, m.FFNHiddenSize, rows)
	}
	tokens := float64(p.SeqLength) * float64(max(p.MicroBatchSize, p.EvalMicroBatchSize))
	if n := tokens * (width + 2*layer); n > most {
		p.clash("seq-length micro-batch-size", "a micro-batch would need about %.1e values per layer; no machine can store that; reduce --seq-length %d or --micro-batch-size %d", n, p.SeqLength, max(p.MicroBatchSize, p.EvalMicroBatchSize))
	} else if tokens > maxMicroTokens && len(p.problems) == 0 { // else it may follow from what was said
		p.clash("seq-length micro-batch-size eval-micro-batch-size", "a micro-batch of %.3g tokens, --seq-length %d times --micro-batch-size %d, exceeds the limit of %d; lower --micro-batch-size, which does not change results if --global-batch-size stays the same", tokens, p.SeqLength, max(p.MicroBatchSize, p.EvalMicroBatchSize), maxMicroTokens)
	}
}

func (p *parser) deriveShape() {
	m := &p.Model
	p.deriveHybrid()
	p.need(m.NumLayers < 1, "num-layers", "the number of transformer layers, at least 1")
	noHidden := p.need(m.HiddenSize < 1, "hidden-size", "the width of the model, at least 1")
	noHeads := p.need(m.NumAttentionHeads < 1, "num-attention-heads", "the number of query heads, at least 1")
	// Width of a head; groups of query heads, one each by default.
	p.deriveLatent()
	p.deriveDelta()
	p.deriveConv()
	p.deriveMamba()
	if m.KVChannels == 0 && !noHidden && !noHeads {
		if m.HiddenSize%m.NumAttentionHeads != 0 {
			p.clash("hidden-size num-attention-heads kv-channels", "--hidden-size %d is not a multiple of --num-attention-heads %d; change one, or give --kv-channels", m.HiddenSize, m.NumAttentionHeads)
		}
		m.KVChannels = m.HiddenSize / m.NumAttentionHeads
	}
	m.NumQueryGroups = m.NumAttentionHeads
	switch {
	case p.Raw.GroupQueryAttention:
		m.NumQueryGroups = p.Raw.QueryGroups
		if !noHeads && m.NumAttentionHeads%m.NumQueryGroups != 0 {
			p.clash("num-attention-heads num-query-groups", "--num-attention-heads %d is not a multiple of --num-query-groups %d; use --num-query-groups %s", m.NumAttentionHeads, m.NumQueryGroups, divisors(m.NumAttentionHeads, m.NumQueryGroups))
		}
	case p.given("num-query-groups") && p.Raw.QueryGroups != m.NumAttentionHeads:
		p.notice("--num-query-groups %d has no effect without --group-query-attention: every query head has its own keys and values", p.Raw.QueryGroups)
	}
	// Biases and norms of QKV, initial values.
	p.deriveFull()
	if m.LinearBias {
		m.QKVBias = !p.Raw.NoQKVBias
	}
	if p.Raw.NoQKVBias && p.given("add-qkv-bias") && m.QKVBias {
		p.clash("disable-qkv-bias add-qkv-bias", "--disable-qkv-bias cannot be combined with --add-qkv-bias; leave one out")
	}
	if m.QKNormFull && !m.QKNorm {
		p.clash("qk-layernorm-whole qk-layernorm", "--qk-layernorm-whole needs --qk-layernorm; give both")
	}
	if !p.given("embedding-init-method-std") {
		m.EmbeddingInitStd = m.InitStd
	}
	p.deriveMuP()
	// Until the tokenizer is built, the vocabulary is what the flags say.
	if p.Raw.NoVocabPadding {
		p.VocabDivisor = 1
	}
	if p.Tokenizer.VocabSize > 0 && p.sound("vocab-size padded-vocab-size make-vocab-size-divisible-by tensor-model-parallel-size") {
		if err := p.SetVocab(p.Tokenizer.VocabSize); err != nil {
			p.problems = append(p.problems, err)
		}
	}
}

func (p *parser) deriveActivation() {
	m, r := &p.Model, &p.Raw
	m.Activation = spec.GeluErf
	if r.BiasGelu && m.LinearBias {
		m.Activation = spec.GeluTanh
	}
	var chosen []string
	for _, a := range activations.WithFlag() {
		if r.Activations[a] || r.GLU == a.String() {
			m.Activation = a.String()
			chosen = append(chosen, a.Row().Flag)
		}
	}
	if len(chosen) > 1 {
		p.clash(strings.Join(chosen, " "), "--%s cannot be combined; give one activation", strings.Join(chosen, " and --"))
	}
	if m.FFNHiddenSize == 0 {
		m.FFNHiddenSize = 4 * m.HiddenSize
		if m.Activation == spec.Swiglu {
			m.FFNHiddenSize = 8 * m.HiddenSize / (3 * 64) * 64
		}
	}
	if m.FFNHiddenSize == 0 && m.HiddenSize > 0 {
		p.clash("hidden-size ffn-hidden-size", "--swiglu cannot derive the width of the MLP from --hidden-size %d, which is too small; give --ffn-hidden-size", m.HiddenSize)
	}
}

func (p *parser) derivePositions() {
	m, r := &p.Model, &p.Raw
	// Older spellings of --position-embedding-type.
	if r.UseRotary {
		if p.given("position-embedding-type") && m.Position != spec.PositionRope {
			p.clash("use-rotary-position-embeddings position-embedding-type", "--use-rotary-position-embeddings cannot be combined with --position-embedding-type %s; leave one out", m.Position)
		}
		m.Position = spec.PositionRope
	}
	if r.NoPositionEmbedding && m.Position == spec.PositionLearned {
		if p.given("position-embedding-type") {
			p.clash("no-position-embedding position-embedding-type", "--no-position-embedding cannot be combined with --position-embedding-type %s; leave one out", m.Position)
		}
		m.Position = spec.PositionNone
	}
	// The sequence must fit the positions.
	p.need(p.SeqLength < 2, "seq-length", "the number of tokens of a training sequence, at least 2")
	if m.Position == spec.PositionLearned {
		p.need(m.Context < 1, "max-position-embeddings", "the number of rows of the learned position embedding, at least --seq-length")
	}
	if m.Context > 0 && m.Context < p.SeqLength {
		p.clash("seq-length max-position-embeddings", "--seq-length %d is longer than --max-position-embeddings %d; use --max-position-embeddings %[1]d or more", p.SeqLength, m.Context)
	}
	if m.Position == spec.PositionLearned {
		m.MaxPositions = m.Context // else a stage has no rows to store
	}
	// RoPE: Llama 3's scaling, and how many channels of a head rotate.
	if r.RopeScaling {
		m.RopeScaling = &spec.RopeScaling{Factor: r.RopeScalingFactor, LowFreq: spec.Llama3LowFreq, HighFreq: spec.Llama3HighFreq, OriginalMax: spec.Llama3OriginalMax}
	}
	if m.Position == spec.PositionRope && m.Latent == nil {
		if dims := m.RotaryDims(); m.KVChannels > 0 && (dims < 2 || dims%2 != 0 || dims > m.KVChannels) {
			p.clash("rotary-percent hidden-size num-attention-heads kv-channels", "--rotary-percent %g rotates %d of a head's %d channels; the number of rotated channels must be even, at least 2 and at most that of the head", m.RotaryPercent, dims, m.KVChannels)
		}
	}
	// Which layers have it, and windows.
	p.deriveNoRope()
	p.deriveParts()
	if m.ParallelResidual && m.NormAfter {
		p.clash("parallel-residual norm-after", "--parallel-residual normalizes the inputs of attention and MLP, but --norm-after normalizes their outputs; choose one")
	}
	left, err := windowLeft(r.Window)
	if err != nil {
		p.clash("window-size", "--window-size %s: %v", r.Window, err)
	}
	m.WindowLeft = left
	p.deriveWindows()
}

// deriveNoRope says which layers do not rotate.
func (p *parser) deriveNoRope() {
	m, r := &p.Model, &p.Raw
	if r.NoRope == "" {
		return
	}
	if n, err := strconv.Atoi(r.NoRope); err == nil && n > 0 && m.NumLayers%n != 0 {
		p.clash("no-rope-freq num-layers", "--no-rope-freq %d does not divide --num-layers %d; change one", n, m.NumLayers)
	}
	layers, err := layerPattern(r.NoRope, m.NumLayers, func(layer, n int) bool { return (layer+1)%n == 0 })
	if err != nil {
		p.clash("no-rope-freq", "--no-rope-freq %s: %v", r.NoRope, err)
	}
	if slices.Contains(layers, true) {
		m.NoRope = layers
	}
}

// deriveWindows says which layers have the window.
func (p *parser) deriveWindows() {
	m, r := &p.Model, &p.Raw
	if r.WindowSkip == "" {
		return
	}
	if m.WindowLeft < 0 && m.Chunk == 0 {
		p.clash("window-attn-skip-freq window-size", "--window-attn-skip-freq %s needs --window-size or --attention-chunk-size; give both", r.WindowSkip)
		return
	}
	var err error
	if m.Windowed, err = windowLayers(r.WindowSkip, m.NumLayers); err != nil {
		p.clash("window-attn-skip-freq", "--window-attn-skip-freq %s: %v", r.WindowSkip, err)
	}
}

func (p *parser) derivePrecision() {
	switch {
	case p.Raw.BF16 && p.Raw.FP16:
		p.clash("bf16 fp16", "--bf16 cannot be combined with --fp16; give one")
	case p.Raw.BF16:
		p.Precision = config.BF16
	case p.Raw.FP16:
		p.Precision = config.FP16
		if p.Optimizer.LossScale == 0 {
			p.CheckForNaN = false // overflow is how the dynamic scale finds its value
		}
	default:
		p.Precision = config.F32
	}
	o := &p.Optimizer
	o.LossScaleWindow = int(p.Raw.LossScaleWindow)
	if o.MinLossScale > o.InitialLossScale {
		p.clash("min-loss-scale initial-loss-scale", "--min-loss-scale %g is above --initial-loss-scale %g; change one", o.MinLossScale, o.InitialLossScale)
	}
}

// maxMicroTokens bounds the arrays of token ids and positions that hold one micro-batch.
const maxMicroTokens = 1 << 27

// batchFlags are those that the sizes of batches follow from.
const batchFlags = "micro-batch-size global-batch-size rampup-batch-size step-batch-size-schedule train-iters train-samples seq-length"

// deriveBatch fills batch sizes and checks that they divide.
func (p *parser) deriveBatch() {
	if p.need(p.MicroBatchSize < 1, "micro-batch-size", "the number of sequences per micro-batch and rank, at least 1") || !p.sound(batchFlags) {
		return
	}
	// The default is one micro-batch per rank and step. A schedule or ramp-up makes the size vary; the final one
	// is what the learning rate's lengths count in.
	dp := max(1, p.Layout.DP)
	if p.GlobalBatchSize == 0 && p.StepBatchSizeSchedule == "" {
		p.GlobalBatchSize = p.MicroBatchSize * dp
	}
	sizes, err := config.NewBatchSizes(&p.Run, dp)
	if err == nil {
		err = sizes.Check()
	}
	if err != nil {
		p.problems = append(p.problems, err)
		return
	}
	if p.StepBatchSizeSchedule != "" && p.GlobalBatchSize != 0 && p.GlobalBatchSize != sizes.Final() {
		p.clash("global-batch-size step-batch-size-schedule", "--global-batch-size %d is not the last batch size of --step-batch-size-schedule (%d); leave one out", p.GlobalBatchSize, sizes.Final())
	}
	p.GlobalBatchSize = sizes.Final()
	// At most so many leaves are added to a gradient: the samples of the largest global batch.
	if p.Raw.LayoutInvariant {
		p.LeafSamples = sizes.Largest()
	}
	if err := p.CheckSchedule(sizes); err != nil {
		p.problems = append(p.problems, err)
	}
	p.deriveEvalBatch(dp)
}

func (p *parser) deriveEvalBatch(dp int) {
	if p.EvalMicroBatchSize == 0 {
		p.EvalMicroBatchSize = p.MicroBatchSize
	}
	step := p.EvalMicroBatchSize * dp
	if p.EvalGlobalBatchSize == 0 {
		p.EvalGlobalBatchSize = p.GlobalBatchSize
		if p.DecreaseBatchSizeIfNeeded {
			p.EvalGlobalBatchSize = p.GlobalBatchSize / step * step
		}
	}
	if p.EvalGlobalBatchSize%step != 0 {
		p.clash("eval-global-batch-size eval-micro-batch-size world-size tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size", "--eval-global-batch-size %d is not a multiple of --eval-micro-batch-size %d times %d data-parallel ranks; change one of them", p.EvalGlobalBatchSize, p.EvalMicroBatchSize, dp)
	}
}

func (p *parser) deriveLength() {
	o := &p.Optimizer
	noLength := p.TrainIters == 0 && p.TrainSamples == 0 && !p.SkipTrain
	p.need(noLength, "train-iters train-samples", "the number of steps, at least 1, or give --train-samples")
	if p.TrainIters > 0 && p.TrainSamples > 0 {
		p.clash("train-iters train-samples", "--train-iters cannot be combined with --train-samples; give one")
	}
	for _, form := range []struct{ unit, other string }{{"iters", "samples"}, {"samples", "iters"}} {
		if p.field(table.Find("train-"+form.unit).To).Int() > 0 {
			p.refuseForms(form.unit, form.other)
		}
	}
	if p.given("lr-warmup-fraction") && (o.WarmupIters > 0 || o.WarmupSamples > 0) {
		p.clash("lr-warmup-fraction lr-warmup-iters lr-warmup-samples", "--lr-warmup-fraction cannot be combined with --lr-warmup-iters or --lr-warmup-samples; give one")
	}
}

// refuseForms: a length in one unit takes no part of the schedule in the other.
func (p *parser) refuseForms(unit, other string) {
	for _, part := range []string{"lr-decay-", "lr-warmup-", "lr-wsd-decay-"} {
		if p.field(table.Find(part+other).To).Int() > 0 {
			p.clash("train-iters train-samples "+part+unit, "--%s%s needs --train-%s; with --train-%s, use --%s%s", part, other, other, unit, part, unit)
		}
	}
}

// scheduleFlags are those that the learning rate of a step follows from.
const scheduleFlags = batchFlags + " lr min-lr lr-decay-style lr-decay-iters lr-decay-samples lr-warmup-iters lr-warmup-samples lr-warmup-fraction " +
	"lr-warmup-init lr-wsd-decay-style lr-wsd-decay-iters lr-wsd-decay-samples"

// deriveState checks what an optimizer's state can be kept in: files of other programs have AdamW's moments, and offload
// updates a piece of the state at a time.
func (p *parser) deriveState() {
	o, c := &p.Optimizer, &p.Checkpoint
	if c.Save != "" && c.Format != "" && c.Format != "native" && o.Kind != optimizer.Adam && o.Kind != optimizer.SGD {
		p.clash("ckpt-format optimizer", "--ckpt-format %s cannot be combined with --optimizer %s: the format stores AdamW's moments only; use --ckpt-format native, and convert the weights afterwards", c.Format, o.Kind)
	}
	if needs := o.Indivisible(); needs != "" {
		for _, offload := range []struct {
			flag  string
			given bool
		}{{"offload-folder", p.OffloadFolder != ""}, {"optimizer-cpu-offload", p.OptimizerCPUOffload}} {
			if offload.given {
				p.clash(offload.flag+" optimizer", "--%s cannot be combined with --optimizer %s: offload updates parts of the state one at a time, but this optimizer needs %s at once; leave one out", offload.flag, o.Kind, needs)
			}
		}
	}
}

// deriveScheduleFree checks the optimizer that replaces a schedule.
func (p *parser) deriveScheduleFree() {
	o := &p.Optimizer
	if o.Kind != optimizer.ScheduleFree {
		return
	}
	if o.DecayStyle != optimizer.DecayConstant {
		p.clash("optimizer lr-decay-style", "--optimizer %s needs --lr-decay-style constant, because this optimizer averages weights instead of lowering the learning rate; a warm-up is allowed", o.Kind)
	}
	if p.given("decoupled-lr") {
		p.clash("optimizer decoupled-lr", "--optimizer %s cannot be combined with --decoupled-lr: this optimizer averages all weights with one learning rate; leave --decoupled-lr out", o.Kind)
	}
	if p.Tuning.Samples() {
		p.clash("optimizer tuning", "--optimizer %s cannot be combined with --tuning grpo, which would sample answers from weights other than the trained weights; use --optimizer adam", o.Kind)
	}
}

// deriveMuon checks what Muon, whose updates are of complete matrices, cannot be given in part.
func (p *parser) deriveMuon() {
	o, m := &p.Optimizer, &p.Model
	if !o.Matrices() {
		return
	}
	// Models whose matrices it does not know.
	if m.LayersDiffer() {
		p.clash("optimizer full-attention-kv-channels full-attention-query-groups keys-are-values kv-shared-layers per-layer-input-size moe-parallel-mlp", "--optimizer %s cannot be combined with Gemma 4's flags, such as --full-attention-kv-channels and --kv-shared-layers: this optimizer needs layers of one shape; use --optimizer adam", o.Kind)
	}
	if m.KeepsState() || m.OutputGate {
		p.clash("optimizer experimental-attention-variant short-conv-freq mamba-layer-freq hybrid-layer-pattern attention-output-gate", "--optimizer %s cannot be combined with --experimental-attention-variant, --short-conv-freq, --mamba-layer-freq, M in --hybrid-layer-pattern or --attention-output-gate, because this optimizer does not support the matrices of such layers; use --optimizer adam", o.Kind)
	}
	// What heads are part of.
	if o.Muon.PerHead && o.Muon.FullQKV {
		p.clash("muon-per-head muon-no-split-qkv", "--muon-per-head cannot be combined with --muon-no-split-qkv, which updates all heads as one matrix; leave one out")
	}
	// Layouts in which each rank takes its part for a matrix.
	if o.Muon.TPMode != optimizer.MuonBlockwise {
		return
	}
	if o.Kind == optimizer.AdaptiveMuon {
		p.clash("optimizer muon-tp-mode", "--optimizer adaptive_muon cannot be combined with --muon-tp-mode blockwise: this optimizer has moments of complete matrices; use --muon-tp-mode duplicated")
	}
	if p.Layout.TP > m.NumQueryGroups {
		p.clash("muon-tp-mode tensor-model-parallel-size num-query-groups", "--muon-tp-mode blockwise needs a query group on each of the %d tensor-parallel ranks; use --muon-tp-mode duplicated", p.Layout.TP)
	}
	if p.Layout.MemoryCentricTiling > 0 {
		p.clash("muon-tp-mode memory-centric-tiling", "--muon-tp-mode blockwise cannot be combined with --memory-centric-tiling, because each tile would be updated as a separate matrix; use --muon-tp-mode duplicated")
	}
}

func (p *parser) deriveOptimizer() {
	p.deriveState()
	p.deriveMuon()
	p.deriveScheduleFree()
	o := &p.Optimizer
	// Weight decay: constant, or from a start to an end.
	noLR := p.need(!p.given("lr") && !p.SkipTrain, "lr", "the peak learning rate")
	growing := o.WeightDecayIncrStyle != optimizer.DecayConstant
	given := p.given("start-weight-decay") || p.given("end-weight-decay")
	switch {
	case given && !growing:
		p.clash("start-weight-decay end-weight-decay weight-decay-incr-style", "--start-weight-decay and --end-weight-decay need --weight-decay-incr-style linear or cosine")
	case growing && !(p.given("start-weight-decay") && p.given("end-weight-decay")):
		p.clash("weight-decay-incr-style start-weight-decay end-weight-decay", "--weight-decay-incr-style %s needs --start-weight-decay and --end-weight-decay", o.WeightDecayIncrStyle)
	case !growing:
		o.StartWeightDecay, o.EndWeightDecay = o.WeightDecay, o.WeightDecay
	}
	// Whose schedule counts after a resume; the rate of embeddings and output layer.
	if o.OverrideScheduler && o.UseCheckpointScheduler {
		p.clash("override-opt-param-scheduler use-checkpoint-opt-param-scheduler", "--override-opt-param-scheduler cannot be combined with --use-checkpoint-opt-param-scheduler; leave one out")
	}
	if p.given("decoupled-lr") && !p.given("decoupled-min-lr") {
		o.DecoupledMinLR = o.MinLR
	}
	if p.given("decoupled-min-lr") && !p.given("decoupled-lr") {
		p.clash("decoupled-min-lr decoupled-lr", "--decoupled-min-lr needs --decoupled-lr")
	}
	if p.given("decoupled-lr") && o.DecoupledMinLR > o.DecoupledLR {
		p.clash("decoupled-min-lr decoupled-lr", "--decoupled-min-lr %g is above --decoupled-lr %g; change one", o.DecoupledMinLR, o.DecoupledLR)
	}
	// The curve itself, if all it depends on is right.
	if noLR || p.SkipTrain || !p.sound(scheduleFlags) || (p.TrainIters == 0) == (p.TrainSamples == 0) || p.GlobalBatchSize == 0 {
		return // reported already, or nothing to schedule
	}
	if p.warmupTooLong("iters", o.WarmupIters, o.DecayIters, p.TrainIters) || p.warmupTooLong("samples", o.WarmupSamples, o.DecaySamples, p.TrainSamples) {
		return
	}
	if _, err := o.Schedule(p.TrainIters, p.TrainSamples, p.GlobalBatchSize); err != nil {
		p.problems = append(p.problems, err)
	}
}

// warmupTooLong: the learning rate would fall before it has risen.
func (p *parser) warmupTooLong(unit string, warmup, decay, train int) bool {
	if decay == 0 {
		decay = train
	}
	if decay == 0 || warmup < decay {
		return false
	}
	p.problem("--lr-warmup-%s must be less than the decay length %d, not %d; lower it, or raise --lr-decay-%s", unit, decay, warmup, unit)
	return true
}

func (p *parser) deriveRecompute() {
	// Older spellings, in terms of --recompute-granularity.
	r := &p.Recompute
	if p.Raw.CheckpointActivations && p.Raw.CheckpointMethod == "" {
		p.Raw.CheckpointMethod = "uniform"
	}
	if p.Raw.CheckpointMethod != "" && r.Granularity == "" {
		r.Granularity, r.Method = "full", p.Raw.CheckpointMethod
		r.NumLayers = max(1, r.NumLayers)
	}
	if p.Raw.RecomputeActivations {
		if r.Granularity == "full" {
			p.clash("recompute-activations recompute-granularity", "--recompute-activations, which means --recompute-granularity selective, cannot be combined with --recompute-granularity full; leave one out")
		}
		r.Granularity = "selective"
	}
	// What belongs to one granularity is an error with the other, and has no effect with none.
	switch r.Granularity {
	case "full":
		if r.Method == "" || r.NumLayers < 1 {
			p.clash("recompute-granularity recompute-method recompute-num-layers", "--recompute-granularity full needs --recompute-method and --recompute-num-layers of at least 1")
		}
	case "selective":
		if r.Method != "" {
			p.clash("recompute-method recompute-granularity", "--recompute-method needs --recompute-granularity full")
		}
	default:
		if p.given("recompute-method") || p.given("recompute-num-layers") || p.given("recompute-modules") {
			p.notice("nothing is recomputed without --recompute-granularity")
		}
	}
	// The inputs of recomputed segments are cut over tensor-parallel ranks, if there are several.
	if p.Layout.DistributeSavedActivation {
		switch {
		case p.Layout.TP <= 1:
			p.Layout.DistributeSavedActivation = false
			p.notice("--distribute-saved-activations has no effect with one tensor-parallel rank")
		case r.Granularity != "full" || p.Layout.SequenceParallel:
			p.clash("distribute-saved-activations recompute-granularity sequence-parallel", "--distribute-saved-activations needs --recompute-granularity full and cannot be combined with --sequence-parallel, which already shards saved activations; leave --distribute-saved-activations out")
		}
	}
}

func (p *parser) deriveCheckpoint() {
	c := &p.Checkpoint
	// When to save and what to keep.
	if c.Save != "" && c.SaveInterval == 0 && !p.options.Partial {
		p.notice("--save is given without --save-interval: only one checkpoint is written, when the run ends or is stopped")
	}
	if c.KeepEvery > 0 && c.SaveInterval > 0 && c.KeepEvery%c.SaveInterval != 0 {
		p.clash("save-retain-interval save-interval", "--save-retain-interval %d is not a multiple of --save-interval %d; use --save-retain-interval %s", c.KeepEvery, c.SaveInterval, config.NearestMultiples(c.KeepEvery, c.SaveInterval))
	}
	if c.KeepEvery > 0 && c.KeepLast == 0 {
		c.KeepLast = 2 // the newest, and one to fall back to
	}
	if c.KeepBest && c.Save != "" && c.Format != "" && c.Format != "native" {
		p.clash("keep-best ckpt-format", "--keep-best cannot be combined with --ckpt-format %s, whose checkpoints do not record evaluations; leave one out", c.Format)
	}
	if (c.KeepBest || p.Patience > 0) && !p.Validates() && !p.options.Partial {
		p.clash("keep-best eval-iters", "--keep-best and --early-stopping-patience need --eval-iters above 0 or --full-validation, because these flags compare evaluations")
	}
	if c.SaveOnLoad != "" && (c.SaveOnLoad == c.Save || c.SaveOnLoad == c.Load) {
		p.clash("save-on-load", "--save-on-load %s: the folder must differ from those of --save and --load, whose checkpoints it would replace; name another folder", c.SaveOnLoad)
	}
	// Time limits of phases.
	if f := p.Watch.TimeoutFactor; f > 0 && f < 1 {
		p.clash("phase-timeout-factor", "--phase-timeout-factor must be at least 1, or 0 for no time-outs, not %g: with a factor below 1, a phase of normal length would end the run; 5 is a usual value", f)
	}
	p.deriveObjects()
	// What is loaded.
	if c.Step > 0 && c.Load == "" {
		p.clash("ckpt-step load", "--ckpt-step needs --load")
	}
	if c.Upcycle && c.Load == "" && c.Pretrained == "" {
		p.clash("moe-use-upcycling load", "--moe-use-upcycling needs a dense checkpoint; give --load or --pretrained-checkpoint")
	}
	if c.Upcycle && p.Raw.Experts.Num == 0 {
		p.clash("moe-use-upcycling num-experts", "--moe-use-upcycling needs --num-experts")
	}
}

func (p *parser) deriveData() {
	d, t := &p.Data, &p.Tokenizer
	d.SequenceLength, d.Seed = p.SeqLength, uint32(p.Seed)
	// Exactly one source of samples.
	perSplit, grouped := len(d.TrainDataPath)+len(d.ValidDataPath)+len(d.TestDataPath) > 0, false
	for s, name := range []string{"train", "valid", "test"} {
		flag := name + "-weighted-split-paths"
		if len(d.Groups[s].Texts) > 0 && d.Groups[s].File != "" {
			p.clash(flag+" "+flag+"-path", "--%s cannot be combined with --%[1]s-path; give one", flag)
		}
		if err := d.Groups[s].Check(dataset.Split(s)); err != nil {
			p.clash(flag, "%s", err)
		}
		grouped = grouped || len(d.Groups[s].Texts) > 0 || d.Groups[s].File != ""
	}
	var sources []string
	for _, source := range []struct {
		given bool
		flags string
	}{{len(d.DataPath) > 0, "--data-path"}, {d.DataArgsPath != "", "--data-args-path"}, {perSplit, "--train-data-path (with --valid- and --test-data-path)"}, {d.PerSplitDataArgsPath != "", "--per-split-data-args-path"},
		{grouped, "--train-weighted-split-paths (with --valid- and --test-weighted-split-paths)"}, {p.Tuning.Data != "", "--finetune-data"}, {d.Mock, "--mock-data"}} {
		if source.given {
			sources = append(sources, source.flags)
		}
	}
	if len(sources) > 1 {
		p.clash("data-path data-args-path train-data-path test-data-path per-split-data-args-path train-weighted-split-paths train-weighted-split-paths-path mock-data finetune-data", "%s cannot be combined; give one", argv.And(sources...))
	}
	p.need(len(sources) == 0, "data-path data-args-path train-data-path valid-data-path test-data-path per-split-data-args-path mock-data", "the corpus as prefixes of .bin/.idx files; --mock-data needs none")
	// --split belongs to sources that are one corpus for all splits; the default is Megatron's.
	if (perSplit || grouped || d.PerSplitDataArgsPath != "") && d.Split != "" {
		p.clash("split data-path", "--split cannot be combined with data that is given per split, since --split divides the data of --data-path; leave --split out")
	}
	if strings.ContainsFunc(d.Split, func(c rune) bool { return !strings.ContainsRune("0123456789., /'\"[]()", c) }) {
		p.clash("split", "--split %s: write one to three numbers, the relative sizes of training, validation and test, as in 969,30,1", d.Split)
	}
	if d.Split == "" && (len(d.DataPath) > 0 || d.DataArgsPath != "") {
		d.Split = "969,30,1"
	}
	if d.Split == "" && d.Mock {
		d.Split = "1,1,1"
	}
	// Without a tokenizer GPT-2's is meant, as in Megatron.
	if t.Type == "" && t.Model == "" {
		t.Type = "GPT2BPETokenizer"
	}
}

// recordedTokenizer takes the tokenizer that the data records where no flag names one.
func (p *parser) recordedTokenizer() {
	p.Tokenizer.Type = tokenizer.TypeOf(p.Tokenizer.Type)
	d := &p.Data
	if !p.Tokenizer.IsZero() || p.Tuning.Data != "" || p.options.Partial {
		return
	}
	recorded, from := dataset.RecordedTokenizer(d.Prefixes())
	if from != "" {
		p.Tokenizer = recorded
		p.notice("tokenizer: %s, as recorded in %s", recorded.Type, from)
	}
}

func (p *parser) deriveReport() {
	l := &p.Log
	p.Graphs = p.Raw.EnableGraph || p.Raw.GraphImpl != table.GraphsOff
	if l.MemoryInterval > 0 && l.MemoryInterval%max(1, l.Interval) != 0 {
		p.clash("log-memory-interval log-interval", "--log-memory-interval %d is not a multiple of --log-interval %d; use --log-memory-interval %s", l.MemoryInterval, l.Interval, config.NearestMultiples(l.MemoryInterval, l.Interval))
	}
	if l.Profile != "" && l.ProfileEnd <= l.ProfileStart {
		p.clash("profile-step-end profile-step-start", "--profile-step-end must be above --profile-step-start %d, not %d", l.ProfileStart, l.ProfileEnd)
	}
	if p.bare["profile"] && l.JSONL != "" { // where the run's page finds it
		l.Profile = filepath.Join(filepath.Dir(l.JSONL), l.Profile)
	}
	p.Layout.NCCLRequested = p.given("distributed-backend") && p.Layout.Backend == "nccl"
}

package training

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"monotron/csrc/device/activations"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/config"
	"monotron/megatron/optimizer"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/tokenizer"
)

// foreign returns the other program's format that an iteration of dir has, or its
// latest where step is -1; "" for our own, or none.
func foreign(dir string, step int64) checkpoint.Format {
	f, err := checkpoint.DetectAt(dir, step)
	if err != nil || f == checkpoint.Native {
		return ""
	}
	return f
}

// loader fills tensors from a checkpoint, whatever its format.
type loader func(tensors []mpu.Stored, o native.LoadOptions) (native.State, native.Report, error)

// native loads our own format: step -1 is the latest that all ranks find sound.
func (r *Run) native(dir string, step int64) loader {
	return func(tensors []mpu.Stored, o native.LoadOptions) (native.State, native.Report, error) {
		for {
			state, report, err := all.LoadNative(dir, step, tensors, r.device, o)
			if err != nil {
				return state, report, r.misfit(state, err)
			}
			newest, err := r.agree(report.Iteration)
			if err != nil {
				return state, report, err
			}
			oldest, err := r.agree(-report.Iteration)
			if err != nil || newest == -oldest {
				return state, report, err
			}
			step = -oldest
			if report.Iteration > step {
				r.log.note("another rank found its part of %s damaged; iteration %d is used instead", report.Folder, step)
			}
		}
	}
}

// restoreForeign brings the run to a checkpoint that another program wrote. One
// without moments and iteration, as models are published, is weights to start
// from.
func (r *Run) restoreForeign(format checkpoint.Format, dir string, step int64, finetune bool) error {
	opened, err := all.OpenAs(format, dir, checkpoint.OpenOptions{Step: step, KeepPadding: r.Config.Model.PaddedVocabCounts, MTP: r.Config.Model.MTP != nil})
	if err != nil {
		return err
	}
	defer opened.Close()
	src, changed := checkpoint.NormWeights(opened, r.Config.Model.NormOnePlus)
	if changed && r.Config.Model.NormOnePlus {
		r.log.note("%s stores the weights of norms as a run without --apply-layernorm-1p does, but this run uses that flag; 1 is subtracted from these weights, so results stay the same", src.Info().Path)
	} else if changed {
		r.log.note("%s stores the weights of norms as a run with --apply-layernorm-1p does, but this run does not use that flag; 1 is added to these weights, so results stay the same", src.Info().Path)
	}
	if err := r.foreignModel(src.Info()); err != nil {
		return err
	}
	r.notePadding(src)
	trained := hasMoments(src)
	if !trained && src.State().Iteration == 0 && !finetune {
		r.log.note("%s has only weights; training starts from these weights at iteration 0", src.Info().Path)
		finetune = true
	}
	if finetune || r.Config.Checkpoint.NoLoadOptim {
		return r.loadWeights(fromSource(checkpoint.Finite(src), r), finetune)
	}
	if !trained {
		return exitcode.Errorf(exitcode.IO, "%s has no optimizer state; use --no-load-optim to continue at the iteration of the checkpoint with new moments, or --finetune to start at iteration 0", src.Info().Path)
	}
	return r.loadAll(fromSource(checkpoint.Finite(checkpoint.Retype(src, storedType(r.Config.Precision))), r))
}

// notePadding says that Megatron-LM computed other losses with the checkpoint than this run does.
func (r *Run) notePadding(src checkpoint.Source) {
	m := src.Info().Model
	if m == nil || r.Config.Model.PaddedVocabCounts || src.State().Version != checkpoint.MegatronLM {
		return
	}
	if rows := m.PaddedVocabSize - m.VocabSize; rows > 0 {
		r.log.note("Megatron-LM includes the %d rows that pad the vocabulary of %s in the softmax, but this run masks them out, so its losses are a little lower; with --padded-vocab-in-softmax they are those of Megatron-LM",
			rows, src.Info().Path)
	}
}

func fromSource(src checkpoint.Source, r *Run) loader {
	return func(tensors []mpu.Stored, o native.LoadOptions) (native.State, native.Report, error) {
		return native.LoadSource(src, tensors, r.device, o)
	}
}

func hasMoments(src checkpoint.Source) bool {
	for _, t := range src.Tensors() {
		if strings.HasPrefix(t.Name, optimizer.StoredExpM) {
			return true
		}
	}
	return false
}

// storedType is the dtype of values in a precision, as files spell it.
func storedType(precision string) string {
	switch precision {
	case config.BF16:
		return "BF16"
	case config.FP16:
		return "F16"
	}
	return "F32"
}

// foreignModel refuses weights whose settings give them another meaning, unless
// --finetune asks for them. Settings that the model does not use do not count.
func (r *Run) foreignModel(info checkpoint.Info) error {
	if r.Config.Checkpoint.Finetune || info.Model == nil {
		return nil
	}
	list := info.Model.Differs(&r.Config.Model)
	if len(list) == 0 {
		return nil
	}
	return exitcode.Errorf(exitcode.IO, "%s contains a different model: %s; give the flags of that model, or --use-checkpoint-args, or --finetune to load the weights anyway",
		info.Path, strings.Join(list, ", "))
}

// foreignFlags are the flags that describe the model of another program's
// checkpoint, for --use-checkpoint-args.
func foreignFlags(format checkpoint.Format, folder string, step int64) (map[string][]string, error) {
	src, err := all.OpenAs(format, folder, checkpoint.OpenOptions{Step: step})
	if err != nil {
		return nil, err
	}
	defer src.Close()
	info := src.Info()
	flags := shapeFlags(info.Model, info.SeqLength)
	if format == checkpoint.HF {
		hidden, attention, err := hf.Dropouts(folder)
		if err != nil {
			return nil, err
		}
		flags["hidden-dropout"], flags["attention-dropout"] = []string{text(hidden)}, []string{text(attention)}
	}
	return withTokenizer(flags, info.Tokenizer), nil
}

// PlanFlags are CheckpointFlags for a plan, which needs no weights: of Hugging Face's files in a folder config.json
// is enough. The vocabulary is the model's, without padding; 0: the flags say it.
func PlanFlags(folder string, step int64) (flags map[string][]string, vocabulary int, err error) {
	file := filepath.Join(folder, "config.json")
	if _, err := os.Stat(file); err != nil {
		flags, err = CheckpointFlags(folder, step)
		return flags, 0, err
	}
	c, err := hf.ReadConfig(file)
	if err != nil {
		return nil, 0, err
	}
	hidden, attention, err := hf.Dropouts(folder)
	if err != nil {
		return nil, 0, err
	}
	c.Model.Context = cmp.Or(c.Model.Context, c.MaxPositions)
	flags = shapeFlags(c.Model, 0)
	flags["hidden-dropout"], flags["attention-dropout"] = []string{text(hidden)}, []string{text(attention)}
	return flags, c.Model.VocabSize, nil
}

func text(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// PresetFlags are the flags of a known model, for --model; a sequence is as long as its context.
func PresetFlags(name string) (map[string][]string, error) {
	m, err := spec.Preset(name)
	if err != nil {
		return nil, err
	}
	flags := shapeFlags(&m, m.Context)
	flags["hidden-dropout"], flags["attention-dropout"] = []string{text(m.HiddenDropout)}, []string{text(m.AttentionDropout)}
	return flags, nil
}

// withTokenizer is flags that name the tokenizer c. A file that the run named and that exists stays: the names
// of the caches of samples come from it.
func withTokenizer(flags map[string][]string, c tokenizer.Config) map[string][]string {
	for name, path := range map[string]string{"vocab-file": c.VocabFile, "merge-file": c.MergeFile, "tokenizer-model": c.Model} {
		if path == "" {
			continue
		}
		if said := flags[name]; len(said) == 1 {
			if _, err := os.Stat(said[0]); err == nil {
				continue
			}
		}
		flags[name] = []string{path}
	}
	if c.Type != "" && len(flags["tokenizer-type"]) == 0 {
		flags["tokenizer-type"] = []string{c.Type}
	}
	return flags
}

// shapeFlags are the flags of a model and of the sequences it was trained on.
func shapeFlags(m *spec.Model, seqLength int) map[string][]string {
	flags := ModelFlags(m)
	if seqLength > 0 {
		flags["seq-length"] = []string{fmt.Sprint(seqLength)}
	}
	return flags
}

// ModelFlags says m on a command line.
func ModelFlags(m *spec.Model) map[string][]string {
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	// Shape.
	flags := map[string][]string{
		"num-layers": {fmt.Sprint(m.NumLayers)}, "hidden-size": {fmt.Sprint(m.HiddenSize)}, "ffn-hidden-size": {fmt.Sprint(m.FFNHiddenSize)},
		"num-attention-heads": {fmt.Sprint(m.NumAttentionHeads)}, "kv-channels": {fmt.Sprint(m.KVChannels)},
		"position-embedding-type": {m.Position}, "normalization": {m.Normalization}, "norm-epsilon": {number(m.NormEpsilon)},
		"max-position-embeddings": {fmt.Sprint(max(m.MaxPositions, m.Context))},
	}
	on := func(name string, is bool) {
		if is {
			flags[name] = []string{"true"}
		}
	}
	// Attention: groups and positions.
	if m.NumQueryGroups != m.NumAttentionHeads {
		on("group-query-attention", true)
		flags["num-query-groups"] = []string{fmt.Sprint(m.NumQueryGroups)}
	}
	if m.Position == spec.PositionRope {
		flags["rotary-base"], flags["rotary-percent"] = []string{number(m.RotaryBase)}, []string{number(m.RotaryPercent)}
		on("rotary-interleaved", m.RotaryInterleaved)
		if m.NoRope != nil {
			flags["no-rope-freq"] = []string{pattern(m.NoRope)}
		}
		if m.RotaryInterpolation > 1 {
			flags["rotary-seq-len-interpolation-factor"] = []string{number(m.RotaryInterpolation)}
		}
		switch s := m.RopeScaling; {
		case s != nil && !s.IsLlama3():
			rule := spec.RopeRule{Type: spec.RopeLlama3, Factor: &s.Factor, LowFreq: &s.LowFreq, HighFreq: &s.HighFreq, OriginalMax: s.OriginalMax}
			flags["rope-parameters"] = []string{rule.Text()}
		case s != nil:
			on("use-rope-scaling", true)
			flags["rope-scaling-factor"] = []string{number(s.Factor)}
		}
	}
	// The MLP and biases.
	for _, a := range activations.WithFlag() {
		on(a.Row().Flag, m.Activation == a.String())
	}
	on("no-bias-gelu-fusion", m.Activation == spec.GeluErf)
	on("disable-bias-linear", !m.LinearBias)
	on("add-qkv-bias", m.QKVBias && !m.LinearBias)
	on("disable-qkv-bias", m.LinearBias && !m.QKVBias)
	on("qk-layernorm", m.QKNorm || m.Latent != nil && m.Latent.Norms)
	// Kinds of layers.
	if m.Latent != nil {
		latentFlags(flags, m.Latent)
	}
	if m.Delta != nil {
		deltaFlags(flags, m.Delta)
	}
	if m.Full != nil {
		flags["full-attention-kv-channels"], flags["full-attention-query-groups"] = []string{fmt.Sprint(m.Full.KVChannels)}, []string{fmt.Sprint(m.Full.NumQueryGroups)}
	}
	if m.Conv != nil {
		flags["short-conv-freq"], flags["short-conv-kernel-dim"] = []string{pattern(m.Conv.Layers)}, []string{fmt.Sprint(m.Conv.Taps)}
	}
	if m.Mamba != nil {
		mambaFlags(flags, m.Mamba)
	}
	if m.MTP != nil {
		mtpFlags(flags, m.MTP)
	}
	// Norms, embeddings, windows.
	on("qk-layernorm-whole", m.QKNormFull)
	on("norm-after", m.NormAfter)
	on("parallel-residual", m.ParallelResidual)
	on("apply-layernorm-1p", m.NormOnePlus)
	on("embed-layernorm", m.EmbedNorm)
	on("untie-embeddings-and-output-weights", !m.Tied)
	if m.WindowLeft >= 0 {
		flags["window-size"] = []string{fmt.Sprintf("%d,0", m.WindowLeft)}
	}
	if m.Windowed != nil && (m.WindowLeft >= 0 || m.Chunk > 0) {
		flags["window-attn-skip-freq"] = []string{pattern(m.Windowed)}
	}
	partFlags(flags, m)
	if m.SoftmaxScale != 0 {
		flags["softmax-scale"] = []string{number(m.SoftmaxScale)}
	}
	if m.Experts != nil {
		maps.Copy(flags, expertFlags(m.Experts))
	}
	if m.Sublayers != nil { // in place of the lists of layers
		flags["hybrid-layer-pattern"] = []string{m.Hybrid()}
		delete(flags, "mamba-layer-freq")
		delete(flags, "moe-layer-freq")
	}
	return flags
}

// partFlags adds the settings that only some families have.
func partFlags(flags map[string][]string, m *spec.Model) {
	for _, p := range spec.Parts() {
		value, given := p.Value(m)
		switch v := value.(type) {
		case float64:
			value = strconv.FormatFloat(v, 'g', -1, 64)
		case bool:
			if p.Word != "" {
				value = p.Word
			}
		}
		if given {
			flags[p.Flag] = []string{fmt.Sprint(value)}
		}
	}
}

// expertFlags says layers of experts on a command line.
func expertFlags(e *spec.Experts) map[string][]string {
	// Which layers have experts.
	layers := make([]string, len(e.Layers))
	for i, on := range e.Layers {
		layers[i] = map[bool]string{true: "1", false: "0"}[on]
	}
	flags := map[string][]string{"num-experts": {fmt.Sprint(e.Num)}, "moe-ffn-hidden-size": {fmt.Sprint(e.FFNHiddenSize)}, "moe-router-topk": {fmt.Sprint(e.TopK)},
		"moe-router-score-function": {e.ScoreFunction}, "moe-layer-freq": {"[" + strings.Join(layers, ",") + "]"}}
	// A number of 0 is the flag's default.
	number := func(name string, v float64) {
		if v != 0 {
			flags[name] = []string{strconv.FormatFloat(v, 'g', -1, 64)}
		}
	}
	if e.RouterDtype != "" {
		flags["moe-router-dtype"] = []string{e.RouterDtype}
	}
	number("moe-router-topk-scaling-factor", e.ScalingFactor)
	number("moe-router-num-groups", float64(e.NumGroups))
	number("moe-router-group-best", float64(e.GroupBest))
	number("moe-router-group-topk", float64(e.GroupTopK))
	number("moe-latent-size", float64(e.LatentSize))
	number("moe-shared-expert-intermediate-size", float64(e.SharedFFN))
	for name, on := range map[string]bool{"moe-router-pre-softmax": e.PreSoftmax, "moe-router-enable-expert-bias": e.ExpertBias,
		"moe-shared-expert-gate": e.SharedGate, "moe-apply-probs-on-input": e.ProbsOnInput} {
		if on {
			flags[name] = []string{"true"}
		}
	}
	return flags
}

// pattern is a list of layers as Megatron's flags write it: [0,1,1].
func pattern(layers []bool) string {
	words := make([]string, len(layers))
	for i, is := range layers {
		words[i] = map[bool]string{false: "0", true: "1"}[is]
	}
	return "[" + strings.Join(words, ",") + "]"
}

// mtpFlags are those of multi-token prediction.
func mtpFlags(flags map[string][]string, p *spec.MTP) {
	flags["mtp-num-layers"], flags["mtp-loss-scaling-factor"] = []string{fmt.Sprint(p.Depths)}, []string{strconv.FormatFloat(p.LossScale, 'g', -1, 64)}
	for name, on := range map[string]bool{"mtp-use-repeated-layer": p.Repeated, "mtp-detach-heads": p.DetachHeads} {
		if on {
			flags[name] = []string{"true"}
		}
	}
}

// deltaFlags are those of gated delta nets.
func deltaFlags(flags map[string][]string, d *spec.Delta) {
	flags["experimental-attention-variant"], flags["linear-attention-freq"] = []string{spec.GatedDeltaNet}, []string{pattern(d.Layers)}
	for name, n := range map[string]int{"linear-conv-kernel-dim": d.Taps, "linear-key-head-dim": d.KeyDim, "linear-value-head-dim": d.ValueDim,
		"linear-num-key-heads": d.KeyHeads, "linear-num-value-heads": d.ValueHeads} {
		flags[name] = []string{fmt.Sprint(n)}
	}
}

// mambaFlags are those of state-space scans.
func mambaFlags(flags map[string][]string, s *spec.Mamba) {
	flags["mamba-layer-freq"] = []string{pattern(s.Layers)}
	for name, n := range map[string]int{"mamba-state-dim": s.StateDim, "mamba-head-dim": s.HeadDim, "mamba-num-groups": s.Groups, "mamba-num-heads": s.Heads, "mamba-conv-kernel-dim": s.Taps} {
		flags[name] = []string{fmt.Sprint(n)}
	}
	for name, x := range map[string]float64{"mamba-dt-min": s.DtMin, "mamba-dt-max": s.DtMax} {
		if x != 0 {
			flags[name] = []string{strconv.FormatFloat(x, 'g', -1, 64)}
		}
	}
	if !s.ConvBias {
		flags["no-mamba-conv-bias"] = []string{"true"}
	}
}

// latentFlags are those of multi-latent attention.
func latentFlags(flags map[string][]string, l *spec.Latent) {
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	set := func(name string, value any) { flags[name] = []string{fmt.Sprint(value)} }
	set("multi-latent-attention", true)
	if l.QRank > 0 {
		set("q-lora-rank", l.QRank)
	}
	set("kv-lora-rank", l.KVRank)
	set("qk-head-dim", l.QKDim)
	set("qk-pos-emb-head-dim", l.RopeDim)
	set("v-head-dim", l.VDim)
	set("rope-type", "rope")
	if l.Yarn {
		set("rope-type", "yarn")
	}
	set("rotary-scaling-factor", number(l.Factor))
	set("mscale", number(l.MScale))
	set("mscale-all-dim", number(l.MScaleAllDim))
	if l.OwnRamp() {
		set("rope-parameters", l.Rule().Text())
	}
	delete(flags, "kv-channels")
	delete(flags, "rotary-percent")
}

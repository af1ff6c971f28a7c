package inference

import (
	"encoding/json"
	"fmt"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/model"
	"monotron/megatron/optimizer"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/mpu/ranks"
	"monotron/tokenizer"
)

// LoadOptions say which weights of a folder to take, and how.
type LoadOptions struct {
	Step      int64     // iteration of a native checkpoint; negative: the latest
	Precision string    // of values: f32, bf16, fp16; "": as the run of a native checkpoint had, else f32
	Adapter   string    // PEFT folder whose adapter the model of Run has; "": none
	Adapters  []Adapter // that Serve's requests may ask for

	rank *ranks.Rank // of several that share the model; nil: this one has all of it
}

// Loaded is a model ready to run, with the other settings of its folder.
type Loaded struct {
	Generator
	Model     spec.Model
	Tokenizer tokenizer.Config // Type "": the folder names none
	Ends      []int32          // ids that end a text, as a Hugging Face folder or a GGUF file says; nil: not said
	Weights   string           // which these are, in a word: iter-100, or "" of a format that does not count
	Notes     []string         // for a person: what was read, and fallbacks

	part      model.StageConfig
	parallel  model.Parallel
	rank      *ranks.Rank
	iteration int64 // 0: the format does not count
}

// orders are between this rank and the others of the model.
func (l *Loaded) orders() *orders { return &orders{world: l.rank.World(), device: l.Device} }

// stored is the part of a run's saved Config that inference needs.
type stored struct {
	Model     spec.Model
	Tokenizer tokenizer.Config
	Precision string
	SeqLength int

	notes []string
}

// Load opens a model from dir: a save folder or one iteration of native
// checkpoints, a folder of Hugging Face, or any other format of package all.
//
// Errors: exitcode.NoInput if no model exists, exitcode.IO and exitcode.BadData
// where it is damaged, exitcode.Usage for an unknown precision.
func Load(d *device.Device, dir string, o LoadOptions) (*Loaded, error) {
	if _, err := dtypeOf(o.Precision); err != nil {
		return nil, err
	}
	format, err := checkpoint.DetectAt(dir, o.Step)
	switch {
	case err != nil:
		return nil, err
	case format != checkpoint.Native:
		return loadForeign(d, format, dir, o)
	}
	return loadNative(d, dir, o)
}

// loaded notes which iteration the weights are; 0: the format does not count.
func (l *Loaded) loaded(iteration int64) {
	if l.iteration = iteration; iteration > 0 {
		l.Weights = fmt.Sprintf("iter-%d", iteration)
	}
}

func loadNative(d *device.Device, dir string, o LoadOptions) (*Loaded, error) {
	c, err := storedConfig(dir, o.Step)
	if err != nil {
		return nil, err
	}
	if o.Precision == "" {
		o.Precision = c.Precision
	}
	l := &Loaded{Model: c.Model, Tokenizer: c.Tokenizer}
	if err := l.build(d, o, longest(&c.Model, c.SeqLength)); err != nil {
		return nil, err
	}
	state, report, err := all.LoadNative(dir, o.Step, l.stored(), d, native.LoadOptions{Convert: true})
	if err != nil {
		return nil, err
	}
	l.Ends = state.Specials()["eos_token_id"]
	report.Extra = nil // the optimizer's tensors, which nobody here expects
	l.Notes = append(report.Lines(), c.notes...)
	l.loaded(report.Iteration)
	return l, nil
}

// storedConfig is the Config of the checkpoint that will be loaded first, or,
// where that cannot be opened and no step was named, of the newest that can.
func storedConfig(dir string, step int64) (*stored, error) {
	f, err := native.OpenSound(dir, step)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c := &stored{}
	if err := json.Unmarshal(f.Manifest.State.Config, c); err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: the run's config in the manifest cannot be read: %w", f.Path, err)
	}
	c.Tokenizer, c.notes = f.Tokenizer(c.Tokenizer)
	m := &c.Model
	if min(m.NumLayers, m.HiddenSize, m.FFNHiddenSize, m.NumAttentionHeads, m.NumQueryGroups, m.KVChannels, m.VocabSize) < 1 || m.PaddedVocabSize < m.VocabSize {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: the run's config in the manifest does not describe a model; use a checkpoint that pretrain_gpt saved", f.Path)
	}
	return c, nil
}

// loadForeign loads what other programs wrote.
func loadForeign(d *device.Device, format checkpoint.Format, dir string, o LoadOptions) (*Loaded, error) {
	src, err := all.OpenAs(format, dir, checkpoint.OpenOptions{Step: o.Step})
	if err != nil {
		return nil, err
	}
	defer src.Close()
	return FromSource(d, checkpoint.Finite(src), o)
}

// FromSource makes a model of an open checkpoint. Precision "" is f32.
func FromSource(d *device.Device, src checkpoint.Source, o LoadOptions) (*Loaded, error) {
	info := src.Info()
	l := &Loaded{Model: *info.Model, Tokenizer: named(info)}
	m := &l.Model
	m.PaddedVocabSize = max(m.PaddedVocabSize, m.VocabSize)
	if err := l.build(d, o, longest(m, info.SeqLength)); err != nil {
		return nil, err
	}
	_, report, err := native.LoadSource(src, l.stored(), d, native.LoadOptions{Convert: true})
	if err != nil {
		return nil, err
	}
	l.loaded(report.Iteration)
	l.Ends = info.Specials["eos_token_id"]
	l.Notes = []string{fmt.Sprintf("loaded %s: format %s, %d tensors, %d bytes", info.Path, info.Format, len(report.Restored), report.Bytes)}
	l.Notes = append(l.Notes, report.Notes...)
	return l, nil
}

// named is the tokenizer that a checkpoint says. GPT-2 itself needs none: its ranks are
// built in.
func named(info checkpoint.Info) tokenizer.Config {
	const gpt2Vocab = 50257
	if info.Tokenizer.IsZero() && info.Family == hf.GPT2 && info.Model.VocabSize == gpt2Vocab {
		return tokenizer.Config{Type: "GPT2BPETokenizer"}
	}
	return info.Tokenizer
}

// stored lists everything that the rank's part of the model takes from files.
func (l *Loaded) stored() (wanted []mpu.Stored) {
	for _, p := range model.ParamsOf(l.Stages) {
		wanted = append(wanted, p.Stored(optimizer.StoredModel, p.Value, 0, p.Owner)...)
	}
	for _, s := range l.Stages {
		wanted = append(wanted, s.Buffers(true)...)
	}
	return wanted
}

// longest is how many positions m knows, where trained on `seq`; 0: no limit.
func longest(m *spec.Model, seq int) int {
	switch {
	case m.Position == spec.PositionLearned:
		return m.MaxPositions
	case m.Position == spec.PositionRope, m.AlibiTable: // tables of so many positions
		return max(seq, m.Context)
	}
	return 0
}

// build makes the rank's part of the model without values.
func (l *Loaded) build(d *device.Device, o LoadOptions, positions int) (err error) {
	l.Model.MTP = nil // generation takes the next token alone
	l.Device, l.Vocab, l.MaxContext = d, l.Model.VocabSize, positions
	if l.Vocab > device.SampleIDs {
		return exitcode.Errorf(exitcode.BadData, "the model's vocabulary has %d ids, but a token can be chosen from at most %d", l.Vocab, device.SampleIDs)
	}
	if l.DType, err = dtypeOf(o.Precision); err != nil {
		return err
	}
	if o.rank == nil {
		o.rank = ranks.Alone(d)
	}
	part, parallel, pipeline, err := part(o.rank, &l.Model)
	if err != nil {
		return err
	}
	part.DType, l.Pipeline, l.Hidden = l.DType, pipeline, int64(l.Model.HiddenSize)
	if o.rank.Sizes.CP > 1 {
		l.Context = parallel.Context
	}
	l.part, l.parallel, l.rank = part, parallel, o.rank
	return l.newStage()
}

// newStage gives l memory for its weights.
func (l *Loaded) newStage() error {
	stage, err := model.NewStage(l.Device, l.part, l.parallel)
	if err != nil {
		return err
	}
	l.Stages = []*model.Stage{stage}
	stage.Materialize(l.MaxContext, false)
	return l.Device.Err()
}

// dtypeOf is the value dtype of a precision by its name in a run's Config.
func dtypeOf(precision string) (device.DType, error) {
	switch precision {
	case "", "f32":
		return device.F32, nil
	case "bf16":
		return device.BF16, nil
	case "fp16":
		return device.F16, nil
	}
	return 0, exitcode.Errorf(exitcode.Usage, "the precision must be f32, bf16 or fp16, not %q", precision)
}

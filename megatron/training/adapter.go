package training

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/checkpoint/peft"
	"monotron/megatron/config"
	"monotron/megatron/model"
	"monotron/megatron/optimizer"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// Adapt finds the modules of the model that get an adapter, before the model is made. A checkpoint that has one
// says which. VocabSize must be set.
func Adapt(c *config.Run) error {
	defer func() { c.PackedBase = packsBase(c) }()
	if err := findAdapters(c); err != nil || !c.Tuning.ByRows() {
		return err
	}
	for i := range c.Model.Adapters {
		c.Model.Adapters[i].Dropout = 0 // log-probabilities are compared without
	}
	return nil
}

func findAdapters(c *config.Run) error {
	if len(c.Model.Adapters) > 0 {
		return nil
	}
	// A resumed run has the adapter of its checkpoint.
	if before, err := storedRun(c.Checkpoint.Load, wantedStep(&c.Checkpoint)); c.Checkpoint.Load != "" && err == nil && len(before.Model.Adapters) > 0 {
		if a := c.Adapter; a.Rank > 0 && a.Folder == "" && (a.Rank != before.Adapter.Rank || a.Alpha != before.Adapter.Alpha || a.DoRA != before.Adapter.DoRA || a.RSLoRA != before.Adapter.RSLoRA) {
			return exitcode.Errorf(exitcode.Usage, "--load %s contains an adapter of rank %d, alpha %g, DoRA %v, rsLoRA %v; give the same --lora flags, or first merge the adapter with monotron convert",
				c.Checkpoint.Load, before.Adapter.Rank, before.Adapter.Alpha, before.Adapter.DoRA, before.Adapter.RSLoRA)
		}
		c.Adapter, c.Model.Adapters, c.Model.Retrained = before.Adapter, before.Model.Adapters, before.Model.Retrained
		return nil
	}
	if !c.Adapter.Given() {
		return nil
	}
	// A new one: the family names the modules, as PEFT's files do.
	settings, err := adapterSettings(&c.Adapter)
	if err != nil {
		return err
	}
	family, base := baseModel(&c.Checkpoint)
	if family == "" {
		if family, err = hf.ModuleFamily(&c.Model); err != nil {
			return exitcode.Errorf(exitcode.Usage, "adapters need the module names of a Hugging Face family: %w", err)
		}
	}
	if settings.Base = base; c.Adapter.Folder == "" {
		settings.FanInFanOut = family == hf.GPT2
	}
	// Which parameters of ours the names mean.
	if c.Model.Adapters, err = peft.Resolve(&c.Model, family, settings); err != nil {
		return err
	}
	if err := checkPatterns(c, settings); err != nil {
		return err
	}
	if c.Model.Retrained, err = peft.Retrain(&c.Model, family, settings, c.Model.Adapters); err != nil {
		return err
	}
	if err := checkRetrained(c); err != nil {
		return err
	}
	if len(settings.Targets.List) == 1 && settings.Targets.List[0] == peft.AllLinear { // as PEFT writes them
		settings.Targets.List, settings.Parameters.List = moduleEnds(c.Model.Adapters)
	}
	c.Adapter.Settings, err = json.Marshal(settings)
	return exitcode.With(exitcode.Internal, err)
}

// packsBase reports whether the weights of --quantize-base lie in memory as NF4: not where complete
// ones are needed (a new DoRA's magnitudes), or where something else is offloaded.
func packsBase(c *config.Run) bool {
	return c.Adapter.Quantize == hf.NF4 && !c.Adapter.DoRA && c.OffloadFolder == "" && !c.OptimizerCPUOffload
}

// checkRetrained refuses weights that are trained with an adapter where something asks for them as they were.
func checkRetrained(c *config.Run) error {
	if c.Model.Retrained == nil {
		return nil
	}
	name := c.Model.Retrained.Names[0]
	switch {
	case c.Tuning.Samples() && c.Tuning.Policy.Beta > 0:
		return exitcode.Errorf(exitcode.Usage, "--grpo-kl-beta cannot be combined with weights that are trained in full together with the adapter, such as %s; leave --grpo-kl-beta out, or leave --lora-modules-to-save and --lora-train-bias out", name)
	case c.Adapter.Quantize != "" && slices.ContainsFunc(c.Model.Retrained.Names, model.IsLinearWeight):
		return exitcode.Errorf(exitcode.Usage, "--quantize-base cannot be combined with linear layers that are trained in full; leave linear layers out of --lora-modules-to-save")
	}
	return nil
}

// checkPatterns refuses a rank or alpha that the flags give to no module, as a name with an error in it would.
func checkPatterns(c *config.Run, settings peft.Config) error {
	if c.Adapter.Folder != "" {
		return nil
	}
	for _, flag := range []struct {
		name string
		list peft.Patterns
	}{{"--lora-rank-pattern", settings.Ranks}, {"--lora-alpha-pattern", settings.Alphas}} {
		name, err := flag.list.Idle(c.Model.Adapters)
		if err != nil {
			return exitcode.With(exitcode.Usage, err)
		}
		if name != "" {
			ends, parameters := moduleEnds(c.Model.Adapters)
			ends = append(ends, parameters...)
			return exitcode.Errorf(exitcode.Usage, "%s: %q applies to no module with an adapter, or an earlier pattern applies to all of its modules; adapters are on modules whose names end in %s", flag.name, name, strings.Join(ends, ", "))
		}
	}
	return nil
}

// moduleEnds are the last parts of the adapted modules' names, and the names of experts' weights in a layer.
func moduleEnds(adapters []spec.Adapter) (ends, parameters []string) {
	for _, a := range adapters {
		parts := strings.Split(a.Module, ".")
		if n := len(parts); a.Experts > 0 {
			parameters = append(parameters, strings.Join(parts[n-3:], "."))
		} else {
			ends = append(ends, parts[n-1])
		}
	}
	slices.Sort(ends)
	slices.Sort(parameters)
	return slices.Compact(ends), slices.Compact(parameters)
}

// noTargets as the only target means no module: experts' weights alone.
const noTargets = "none"

// adapterSettings are those of --adapter, with which flags that are given must agree, or the
// flags'.
func adapterSettings(a *config.Adapter) (c peft.Config, err error) {
	if a.Folder == "" {
		targets := a.Targets
		if len(targets) == 0 {
			targets = []string{peft.AllLinear}
		}
		if slices.Equal(targets, []string{noTargets}) {
			targets = []string{}
		}
		return peft.Config{R: a.Rank, Alpha: a.Alpha, Dropout: a.Dropout, Targets: peft.Names{List: targets}, Parameters: peft.Names{List: a.Parameters}, Saved: peft.Names{List: a.Saved},
			Bias: a.Bias, RSLoRA: a.RSLoRA, DoRA: a.DoRA, Ranks: patterns(a.Ranks), Alphas: patterns(a.Alphas)}, nil
	}
	if c, err = peft.ReadConfig(a.Folder); err != nil {
		return c, err
	}
	if a.Rank > 0 && (a.Rank != c.R || a.Alpha != c.Alpha || a.RSLoRA != c.RSLoRA || a.DoRA != c.DoRA) {
		return c, exitcode.Errorf(exitcode.Usage, "--adapter %s has rank %d, alpha %g, rsLoRA %v, DoRA %v, but the --lora flags give %d, %g, %v, %v; leave the --lora flags out",
			a.Folder, c.R, c.Alpha, c.RSLoRA, c.DoRA, a.Rank, a.Alpha, a.RSLoRA, a.DoRA)
	}
	a.Rank, a.Alpha, a.RSLoRA, a.DoRA, a.Targets, a.Parameters, a.Saved, a.Bias = c.R, c.Alpha, c.RSLoRA, c.DoRA, c.Targets.List, c.Parameters.List, c.Saved.List, c.Bias
	if a.Dropout > 0 {
		c.Dropout = a.Dropout
	}
	return c, nil
}

// patterns are numbers by names as PEFT has them.
func patterns(list []config.Pattern) (out peft.Patterns) {
	for _, p := range list {
		out = append(out, peft.Pattern{Name: p.Name, Value: p.Value})
	}
	return out
}

// baseModel is the family of the model that is loaded, "" where its format does not say, and the
// folder's name.
func baseModel(c *config.Checkpoint) (family, folder string) {
	folder = c.Load
	if folder == "" {
		folder = c.Pretrained
	}
	if folder == "" || foreign(folder, wantedStep(c)) != checkpoint.HF {
		return "", folder
	}
	src, err := all.OpenAs(checkpoint.HF, folder, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		return "", folder // loading says what is wrong
	}
	defer src.Close()
	return src.Info().Family, folder
}

// holdsAdapter reports whether the checkpoint has the run's adapter.
func (r *Run) holdsAdapter(dir string, step int64) bool {
	before, err := storedRun(dir, step)
	return foreign(dir, step) == "" && err == nil && len(before.Model.Adapters) > 0
}

// drawAdapter gives a new adapter its start, before the base's weights are loaded.
func (r *Run) drawAdapter() error {
	return r.Engine.Optimizer.FillNamed(model.IsAdapter, func(p *mpu.Param) error {
		p.Initialize(r.device, uint64(r.Config.Seed))
		return nil
	})
}

// beginAdapter reads --adapter, or completes a new adapter, after the base's weights are loaded.
func (r *Run) beginAdapter() error {
	if len(r.Config.Model.Adapters) == 0 || r.device.Counts() {
		return nil
	}
	if r.Config.Adapter.Folder != "" {
		return r.readAdapter()
	}
	if !r.Config.Adapter.DoRA {
		return nil
	}
	if l := &r.Config.Layout; l.Sharding == string(optimizer.OptimGradsParams) || r.Config.OffloadFolder != "" {
		return exitcode.Errorf(exitcode.Usage, "to start a new adapter, --use-dora needs complete weights, which --zero-stage 3 and --offload-folder do not keep; use --zero-stage 2 or less, and no --offload-folder, up to the first checkpoint")
	}
	return r.startMagnitudes()
}

// startMagnitudes completes a new adapter of DoRA, whose base is loaded.
func (r *Run) startMagnitudes() error {
	if !r.Config.Adapter.DoRA {
		return nil
	}
	for _, s := range r.Engine.Stages {
		if err := s.StartMagnitudes(); err != nil {
			return err
		}
	}
	r.Engine.Optimizer.AdoptValues(isMagnitude)
	return r.device.Sync()
}

// isMagnitude reports whether a parameter is a magnitude of DoRA.
func isMagnitude(name string) bool { return strings.HasSuffix(name, ".lora_magnitude_vector") }

// readAdapter takes the adapter's values from --adapter.
func (r *Run) readAdapter() error {
	family, _ := baseModel(&r.Config.Checkpoint)
	f, err := peft.Open(r.Config.Adapter.Folder, &r.Config.Model, family)
	if err != nil {
		return err
	}
	defer f.Close()
	if names := f.Replaces(); len(names) > 0 && r.base != nil {
		return exitcode.Errorf(exitcode.Usage, "--save-adapter-only cannot be combined with --adapter %s, which contains %s in full; leave --save-adapter-only out", r.Config.Adapter.Folder, names[0])
	}
	var wanted []mpu.Stored
	for _, s := range slices.Concat(r.Engine.Weights(), r.Engine.Optimizer.Stored()) {
		for _, prefix := range []string{optimizer.StoredModel, optimizer.StoredMain} {
			if name, is := strings.CutPrefix(s.Name, prefix); is && (model.IsAdapter(name) || f.Holds(name)) {
				wanted = append(wanted, s)
			}
		}
	}
	_, report, err := native.LoadSource(checkpoint.Finite(f), wanted, r.device, native.LoadOptions{Convert: true})
	if err != nil {
		return err
	}
	r.log.note("loaded the adapter %s: %d tensors", r.Config.Adapter.Folder, len(report.Restored))
	return r.device.Sync()
}

// adapterFolder is where --save has the newest adapter in PEFT's files.
const adapterFolder = "adapter"

// writeAdapter writes the adapter of a checkpoint that was saved, on the first rank.
func (r *Run) writeAdapter(report native.Report) error {
	if len(r.Config.Model.Adapters) == 0 || r.rank.Number > 0 {
		return nil
	}
	src, err := all.OpenAs(checkpoint.Native, r.Config.Checkpoint.Save, checkpoint.OpenOptions{Step: report.Iteration, NoBase: true})
	if err != nil {
		return err
	}
	defer src.Close()
	dir := filepath.Join(r.Config.Checkpoint.Save, adapterFolder)
	if err := WriteAdapter(dir, src); err != nil {
		return err
	}
	r.log.note("wrote the adapter of iteration %d to %s", report.Iteration, dir)
	return nil
}

// WriteAdapter writes the adapter of a checkpoint of ours to dir, in PEFT's files.
func WriteAdapter(dir string, src checkpoint.Source) error {
	var before stored
	if err := json.Unmarshal(src.State().Config, &before); err != nil {
		return exitcode.Errorf(exitcode.IO, "%s: the settings in the checkpoint cannot be read: %w", src.Info().Path, err)
	}
	var settings peft.Config
	if err := json.Unmarshal(before.Adapter.Settings, &settings); err != nil {
		return exitcode.Errorf(exitcode.IO, "%s: the settings of the adapter cannot be read: %w", src.Info().Path, err)
	}
	return peft.Write(dir, src, settings)
}

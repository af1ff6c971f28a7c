package training

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/config"
	"monotron/megatron/model"
	"monotron/megatron/optimizer"
	"monotron/megatron/spec"
)

// restore brings the run to its checkpoint, or to fresh weights where there is
// none to load.
func (r *Run) restore() error {
	if r.found != nil {
		return r.restoreMemory()
	}
	return r.restoreStored()
}

// restoreStored is restore without memory checkpoints.
func (r *Run) restoreStored() error {
	c := &r.Config.Checkpoint
	// Fresh weights.
	dir, finetune, err := r.source()
	if err != nil {
		return err
	}
	if dir == "" {
		if err := r.Engine.Initialize(); err != nil {
			return err
		}
		return r.beginAdapter()
	}
	if r.device.Counts() {
		return nil // what is loaded goes where the tensors are
	}
	// A checkpoint: --load continues it, --pretrained-checkpoint gives weights only.
	step := int64(-1)
	if dir == c.Load {
		step = wantedStep(c)
	}
	if c.Upcycle {
		return r.upcycle(dir, step)
	}
	finetune = finetune || r.begins(dir, step)
	// A base model to which a new adapter is added.
	if len(r.Config.Model.Adapters) > 0 && !r.holdsAdapter(dir, step) {
		if err := r.drawAdapter(); err != nil {
			return err
		}
		if c.AdapterOnly {
			if r.base, err = all.NewBase(dir, step, r.Config.Adapter.Quantize, r.Config.Adapter.DoubleQuant); err != nil {
				return err
			}
		}
		load := r.load
		if r.Config.Adapter.Quantize != "" {
			load = r.loadQuantized
		}
		if err := load(dir, step, finetune); err != nil {
			return err
		}
		return r.beginAdapter()
	}
	return r.load(dir, step, finetune)
}

// load takes a checkpoint of any format.
func (r *Run) load(dir string, step int64, finetune bool) error {
	if format := foreign(dir, step); format != "" {
		return r.restoreForeign(format, dir, step, finetune)
	}
	if finetune || r.Config.Checkpoint.NoLoadOptim {
		return r.loadWeights(r.native(dir, step), finetune)
	}
	return r.loadAll(r.native(dir, step))
}

// resumeSaved applies --resume-from-save: a run whose save folder holds something continues from there,
// with all that is stored. Loading reports errors of the folder.
func resumeSaved(c *config.Checkpoint) {
	if _, err := checkpoint.ReadTracker(c.Save); c.Resume && c.Save != "" && exitcode.CodeOf(err) != exitcode.NoInput {
		c.Load, c.Pretrained, c.Step, c.Finetune, c.NoLoadOptim, c.Upcycle = c.Save, "", 0, false, false, false
	}
}

// wantedStep is the iteration that --ckpt-step names, -1 for the latest.
func wantedStep(c *config.Checkpoint) int64 {
	if c.Step > 0 {
		return int64(c.Step)
	}
	return -1
}

// source is the folder to load from, "" for none, and whether only weights are
// wanted of it.
func (r *Run) source() (dir string, finetune bool, err error) {
	c := &r.Config.Checkpoint
	if c.Load == "" && c.Pretrained == "" {
		return "", false, nil
	}
	if c.Load != "" {
		if foreign(c.Load, wantedStep(c)) != "" {
			return c.Load, c.Finetune, nil
		}
		if st, err := os.Stat(c.Load); err == nil && !st.IsDir() {
			return "", false, exitcode.Errorf(exitcode.IO, "--load %s is neither a folder nor a checkpoint of another program; give a folder that --save wrote", c.Load)
		}
		_, err := native.Latest(c.Load)
		if err == nil {
			return c.Load, c.Finetune, nil
		}
		if !errors.Is(err, native.ErrNone) {
			return c.Load, c.Finetune, nil // there is something: loading says what is wrong with it, or falls back
		}
	}
	switch {
	case c.Pretrained != "":
		return c.Pretrained, true, nil
	case c.Upcycle:
		return "", false, exitcode.Errorf(exitcode.NoInput, "--load %s: --moe-use-upcycling needs a dense checkpoint, but the folder has none; leave --moe-use-upcycling out to start from random weights", c.Load)
	case c.ExitOnMissing || c.Step > 0:
		return "", false, exitcode.Errorf(exitcode.NoInput, "--load %s: the folder has no checkpoint; leave out --exit-on-missing-checkpoint and --ckpt-step to start from random weights", c.Load)
	case c.Finetune && !c.AllowMissing:
		return "", false, exitcode.Errorf(exitcode.NoInput, "--load %s: --finetune starts from the weights of a checkpoint, but %s", c.Load, whyNone(c.Load))
	case len(checkpoint.Below(c.Load)) > 0 && !c.MayBeMissing():
		return "", false, exitcode.Errorf(exitcode.NoInput, "--load %s: %s", c.Load, whyNone(c.Load))
	case absent(c.Load) && !c.MayBeMissing():
		return "", false, exitcode.Errorf(exitcode.NoInput, "--load %s: the folder does not exist; correct the path, leave --load out to start from random weights, or give --allow-missing-load (the flag is not needed if --save names the same folder)", c.Load)
	}
	r.log.note("there is no checkpoint in %s; training starts from random weights", c.Load)
	return "", false, nil
}

// whyNone says why a folder gives no weights, and what to give instead.
func whyNone(dir string) string {
	why := "the folder has no checkpoint"
	if absent(dir) {
		why = "there is no such folder"
	}
	if below := checkpoint.Below(dir); len(below) > 0 {
		return why + ", but folders in it have one; give " + strings.Join(below, " or ")
	}
	return why + "; correct the path, leave --load out to start from random weights, or give --allow-missing-load"
}

// absent reports whether there is nothing at a path.
func absent(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// loadAll continues a run: everything must be there.
func (r *Run) loadAll(load loader) error {
	stored := slices.Concat(r.Engine.Weights(), r.Engine.Scales(), r.Engine.Optimizer.Stored())
	state, report, err := load(stored, native.LoadOptions{AllowMissing: func(s *native.State, name string) bool {
		return wasFrozen(s, name) || isGrid(name) || isScale(name)
	}})
	if err := r.sameHistories(state, err); err != nil {
		return err
	}
	if errors.Is(err, native.ErrMisfit) && !errors.Is(err, errReshaped) {
		return fmt.Errorf("%w\n(if only the precision or the optimizer differs, use --finetune to load only the weights, or --no-load-optim to load the weights and the iteration)", err)
	}
	if err != nil {
		return err
	}
	if err := r.sameModel(state, report); err != nil {
		return err
	}
	if err := r.sameLeaves(state); err != nil {
		return err
	}
	r.tellScales(report)
	r.thaw(&report)
	if err := r.position(state); err != nil {
		return err
	}
	if raw := state.Extra[adamSteps]; len(raw) == 0 {
		r.Engine.Optimizer.Steps = state.Iteration // other programs may not say
	} else if err := json.Unmarshal(raw, &r.Engine.Optimizer.Steps); err != nil {
		return exitcode.Errorf(exitcode.IO, "%s: the count of optimizer steps cannot be read: %w", report.Folder, err)
	}
	if !r.Config.SkipTrain {
		if err := r.loadSchedules(state, report.Folder); err != nil {
			return err
		}
	}
	r.continueSpecials(state)
	r.tellLoaded(state, report)
	r.tellAttention(state)
	return nil
}

// continueSpecials keeps the ids of special tokens that the checkpoint has, such as several that end a text, where
// they are those of the run's tokenizer.
func (r *Run) continueSpecials(state native.State) {
	if r.Tokenizer == nil { // a step that is replayed has none
		return
	}
	if ids := state.Specials(); slices.Contains(ids["eos_token_id"], int32(r.Tokenizer.EOD())) {
		r.specials = ids
	}
}

// errReshaped is in the chain of a misfit that flags of the model explain.
var errReshaped = errors.New("the model's flags differ")

// misfit says which flags a checkpoint that does not fit was made with otherwise, where its state
// has them: they are shorter to read than the tensors.
func (r *Run) misfit(state native.State, err error) error {
	before := modelOf(state)
	if before == nil || !errors.Is(err, native.ErrMisfit) {
		return err
	}
	list := before.Reshaped(&r.Config.Model)
	if len(list) == 0 {
		return err
	}
	also := ""
	if before.Experts == nil && r.Config.Model.Experts != nil {
		also = "; use --moe-use-upcycling to initialize experts from the MLPs of a dense model"
	}
	return fmt.Errorf("%w\n(%w: %s; give the values of the checkpoint, or use --use-checkpoint-args%s)", err, errReshaped, strings.Join(list, ", "), also)
}

// modelOf is the model that a checkpoint was trained as; nil: it is another program's.
func modelOf(state native.State) *spec.Model {
	var c struct{ Model *spec.Model }
	if json.Unmarshal(state.Config, &c) != nil {
		return nil
	}
	return c.Model
}

// wasFrozen reports whether a checkpoint has no such tensor because its run did not train
// the parameter.
func wasFrozen(s *native.State, name string) bool {
	var before struct{ FreezeParameters []string }
	param, is := optimizerState(name)
	return is && json.Unmarshal(s.Config, &before) == nil && (&config.Step{FreezeParameters: before.FreezeParameters}).Freezes(param)
}

// isGrid reports whether a checkpoint's tensor is a grid of gradients, which runs without
// --layout-invariant do not have.
func isGrid(name string) bool { return strings.HasPrefix(name, optimizer.StoredGrid) }

// sameLeaves refuses to continue with other leaves than the checkpoint's, which would change bits.
func (r *Run) sameLeaves(state native.State) error {
	var before struct{ Leaves, SequenceLeaves int }
	if json.Unmarshal(state.Config, &before) != nil || before.Leaves == 0 || r.Config.Leaves == 0 {
		return nil
	}
	if before.SequenceLeaves == 0 { // a checkpoint of a version without --sequence-leaves
		before.SequenceLeaves = before.Leaves
	}
	for _, f := range []struct {
		flag     string
		now, old int
	}{{"--reduction-leaves", r.Config.Leaves, before.Leaves}, {"--sequence-leaves", r.Config.SequenceLeaves, before.SequenceLeaves}} {
		if f.now != f.old {
			return exitcode.Errorf(exitcode.Usage, "%[1]s must be %[3]d, as in the checkpoint, not %[2]d, which would change the bits of sums; give %[1]s %[3]d, or --finetune to start a new run from the weights of the checkpoint",
				f.flag, f.now, f.old)
		}
	}
	return nil
}

// optimizerState is the parameter whose main parameter or moment a checkpoint's tensor is.
func optimizerState(name string) (param string, is bool) {
	for _, kind := range optimizer.StoredStates {
		if param, is = strings.CutPrefix(name, kind); is {
			return param, true
		}
	}
	return "", false
}

// thaw starts the optimizer's state of parameters that the checkpoint's run did not
// train: main parameters are their values, moments 0.
func (r *Run) thaw(report *native.Report) {
	thawed := map[string]bool{}
	for _, name := range report.Missing {
		if param, is := optimizerState(name); is { // grids are found by the first step
			thawed[param] = true
		}
	}
	if report.Missing = nil; len(thawed) > 0 {
		r.Engine.Optimizer.AdoptValues(func(param string) bool { return thawed[param] })
		r.log.note("%d parameters were frozen in this checkpoint and are trained now; their moments start at 0", len(thawed))
	}
}

// position takes iteration and consumed samples from a checkpoint.
func (r *Run) position(s native.State) error {
	if s.Iteration < 0 || s.ConsumedTrain < 0 || s.ConsumedValid < 0 {
		return exitcode.Errorf(exitcode.IO, "the checkpoint has a negative count: iteration %d, consumed training samples %d, consumed validation samples %d", s.Iteration, s.ConsumedTrain, s.ConsumedValid)
	}
	r.Engine.Iteration = s.Iteration
	r.at = Progress{s.ConsumedTrain, s.ConsumedValid, s.SkippedTrain}
	r.continueOrder(s)
	if r.Config.Checkpoint.Save == r.Config.Checkpoint.Load {
		r.saver.saved = s.Iteration
	}
	if raw := s.Extra[checkpoint.ExtraBase]; r.Config.Checkpoint.AdapterOnly && len(raw) > 0 {
		if err := json.Unmarshal(raw, &r.base); err != nil {
			return exitcode.Errorf(exitcode.IO, "the checkpoint of iteration %d: the stored path and checksum of the base model cannot be read: %w", s.Iteration, err)
		}
	}
	if err := r.continueAnswers(s); err != nil {
		return err
	}
	return r.continueBest(s)
}

func (r *Run) loadSchedules(state native.State, folder string) error {
	if len(state.Scheduler) == 0 {
		r.log.note("%s has no state of the schedule, so the schedule continues from the number of consumed samples", folder)
		r.Engine.Scheduler.Step(int(r.at.ConsumedTrain))
		return nil
	}
	var scheduler optimizer.SchedulerState
	if err := json.Unmarshal(state.Scheduler, &scheduler); err != nil {
		return exitcode.Errorf(exitcode.IO, "%s: the state of the schedule cannot be used: %w", folder, err)
	}
	notes, err := r.Engine.Scheduler.Load(scheduler, r.Config.Optimizer.OverrideScheduler, r.Config.Optimizer.UseCheckpointScheduler)
	if err != nil {
		return err
	}
	for _, n := range notes {
		r.log.note("%s", n)
	}
	if len(state.Scaler) == 0 {
		return nil
	}
	var scaler optimizer.ScalerState
	if err := json.Unmarshal(state.Scaler, &scaler); err != nil {
		return exitcode.Errorf(exitcode.IO, "%s: the state of the loss scale cannot be used: %w", folder, err)
	}
	r.Engine.Scaler.Load(scaler)
	return nil
}

// loadWeights takes the values, converting their dtype where needed, and the
// main parameters where the checkpoint has them. With finetune the run starts at 0.
func (r *Run) loadWeights(load loader, finetune bool) error {
	stored := append(r.Engine.Weights(), r.Engine.Scales()...)
	for _, s := range r.Engine.Optimizer.Stored() {
		if strings.HasPrefix(s.Name, optimizer.StoredMain) {
			stored = append(stored, s)
		}
	}
	isMain := func(_ *native.State, name string) bool { // adapters are new
		return isScale(name) || strings.HasPrefix(name, optimizer.StoredMain) || model.IsAdapter(strings.TrimPrefix(name, optimizer.StoredModel))
	}
	state, report, err := load(stored, native.LoadOptions{AllowMissing: isMain, Convert: true})
	if err := r.sameHistories(state, err); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	if err := r.sameModel(state, report); err != nil {
		return err
	}
	r.tellScales(report)
	missing := map[string]bool{}
	for _, name := range report.Missing {
		missing[name] = true
	}
	report.Missing = nil // the values replace them
	r.Engine.Optimizer.AdoptValues(func(name string) bool { return missing[optimizer.StoredMain+name] })
	if !finetune {
		if err := r.position(state); err != nil {
			return err
		}
		r.Engine.Scheduler.Step(int(r.at.ConsumedTrain))
		r.tellAttention(state)
	}
	r.continueSpecials(state)
	r.tellLoaded(state, report)
	return r.device.Sync()
}

// sameModel refuses weights of another model, unless --finetune asks for them.
func (r *Run) sameModel(state native.State, report native.Report) error {
	if r.Config.Checkpoint.Finetune {
		return nil
	}
	if before := modelOf(state); before != nil {
		if list := before.Differs(&r.Config.Model); len(list) > 0 {
			return exitcode.Errorf(exitcode.IO, "%s was trained with a different model: %s; give the flags of that model, or --use-checkpoint-args, or --finetune to load the weights anyway",
				report.Folder, strings.Join(list, ", "))
		}
	}
	known, err := parameterNames(&r.Config)
	if err != nil {
		return err
	}
	for _, name := range report.Extra {
		if short, is := strings.CutPrefix(name, optimizer.StoredModel); is && !known[short] {
			return exitcode.Errorf(exitcode.IO, "%s contains %s, which the model of this run does not have, so the flags of the model differ (--finetune loads only the tensors that match)", report.Folder, name)
		}
	}
	return nil
}

// parameterNames are those that files have for the tensors of the complete model, whatever
// ranks hold them.
func parameterNames(c *config.Run) (map[string]bool, error) {
	full, err := c.UncutStage()
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, p := range full.Params() {
		for _, t := range p.Tensors() {
			names[t.Name] = true
		}
	}
	for _, b := range full.Buffers(false) {
		names[strings.TrimPrefix(b.Name, optimizer.StoredModel)] = true
	}
	return names, nil
}

// tellLoaded prints what was loaded, and which settings differ from those the
// checkpoint was trained with.
func (r *Run) tellLoaded(state native.State, report native.Report) {
	report.Overridden = changedSettings(state.Config, &r.Config, r.Asked.NameOf)
	r.creditOthers(&report)
	for _, line := range report.Lines() {
		r.log.note("%s", line)
	}
}

// creditOthers counts as restored what other ranks hold of the model.
func (r *Run) creditOthers(report *native.Report) {
	known, err := parameterNames(&r.Config)
	if err != nil || r.rank.World().Size() == 1 {
		return
	}
	var kinds []string
	for _, kind := range append([]string{optimizer.StoredModel}, optimizer.StoredStates...) {
		if slices.ContainsFunc(report.Restored, func(name string) bool { return strings.HasPrefix(name, kind) }) {
			kinds = append(kinds, kind)
		}
	}
	scales := slices.ContainsFunc(report.Restored, isScale)
	otherFormat := func(name string) bool {
		if layer, is := scaledLayer(name); is && scales {
			return known[layer+".weight"] || strings.Contains(layer, ".experts.")
		}
		return slices.ContainsFunc(kinds, func(kind string) bool {
			param, is := strings.CutPrefix(name, kind)
			return is && known[param]
		})
	}
	for _, name := range report.Extra {
		if otherFormat(name) {
			report.Restored = append(report.Restored, name)
		}
	}
	report.Extra = slices.DeleteFunc(report.Extra, otherFormat)
}

// tellAttention warns where a checkpoint's steps were made by the other attention: what
// follows differs by rounding from what would have followed there.
func (r *Run) tellAttention(state native.State) {
	var before string
	if raw := state.Extra[attentionKind]; len(raw) > 0 && json.Unmarshal(raw, &before) != nil {
		return // a note's source, nothing that the run rests on
	}
	if now := r.Engine.Attention; now != "" && before != "" && before != now {
		r.log.note("attention: iteration %d was trained with --attention-backend %s, but this run continues with %s: results are equal up to rounding, but not bit for bit", state.Iteration, before, now)
	}
}

// changedSettings lists the settings that may change the numbers and differ, by the names of their flags; nameOf may be nil.
func changedSettings(saved json.RawMessage, now *config.Run, nameOf func(field string) string) []string {
	if len(saved) == 0 {
		return nil // another program's
	}
	current, err := json.Marshal(kept(now))
	if err != nil {
		return nil
	}
	var before, after map[string]any
	if json.Unmarshal(saved, &before) != nil || json.Unmarshal(current, &after) != nil {
		return []string{"the checkpoint's settings cannot be read"}
	}
	for _, harmless := range []string{"Checkpoint", "Log", "Watch", "ExitInterval", "ExitDurationMins", "Patience", "TrainSeconds", "CPUThreads", "NumWorkers", "SamplePrompt", "SampleTokens", "Flags"} {
		delete(before, harmless)
		delete(after, harmless)
	}
	if nameOf == nil {
		nameOf = func(field string) string { return field }
	}
	return differences("", before, after, nameOf)
}

func differences(path string, before, after map[string]any, nameOf func(field string) string) (list []string) {
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if key == "Adapters" || key == "Retrained" || key == "Settings" { // Adapter says it shorter
			continue
		}
		was, is := before[key], after[key]
		a, isMap := was.(map[string]any)
		b, alsoMap := is.(map[string]any)
		if isMap && alsoMap {
			list = append(list, differences(path+key+".", a, b, nameOf)...)
		} else if x, y := fmt.Sprint(was), fmt.Sprint(is); x != y && !(was == nil && (is == nil || reflect.ValueOf(is).IsZero())) { // an older version had no such setting
			list = append(list, fmt.Sprintf("%s %s -> %s", nameOf(path+key), x, y))
		}
	}
	return list
}

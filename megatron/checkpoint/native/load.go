package native

import (
	"errors"
	"fmt"
	"strings"

	"monotron/csrc/device"
	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

// ErrMisfit is in the chain of Load's error when a sound checkpoint holds other
// tensors than the run has.
var ErrMisfit = errors.New("the checkpoint does not fit this run")

// LoadOptions waive what is otherwise an error.
type LoadOptions struct {
	// Tensors that may keep their values where the checkpoint of this state has none; nil: none.
	AllowMissing func(s *State, name string) bool
	Convert      bool // float tensors of another dtype are converted, and reported
}

// Load fills the tensors of this rank from a checkpoint of dir, whatever layout
// wrote it, and returns its state. Step -1 is the latest; when that is damaged
// the next older one is taken, and the report's notes say what was wrong. A
// given step has no substitute.
//
// Errors: ErrNone in the chain (exitcode.NoInput) if no checkpoint exists at
// all, exitcode.IO where all are damaged or the tensors do not fit this run. After
// an error the tensors' values are undefined.
func Load(dir string, step int64, tensors []mpu.Stored, dev *device.Device, o LoadOptions) (State, Report, error) {
	for _, t := range tensors {
		if err := checkStored(t); err != nil {
			return State{}, Report{}, err
		}
	}
	type result struct {
		state  State
		report Report
	}
	r, err := newest(step, func() (result, error) {
		state, report, err := loadNow(dir, step, tensors, dev, o)
		return result{state, report}, err
	})
	return r.state, r.report, err
}

// loadNow is Load of tensors that are checked, from what there is now.
func loadNow(dir string, step int64, tensors []mpu.Stored, dev *device.Device, o LoadOptions) (State, Report, error) {
	order, notes, err := chosen(dir, step)
	if err != nil {
		return State{}, Report{Notes: notes}, err
	}
	touched := map[string]bool{} // by a checkpoint that turned out damaged
	for i, entry := range order {
		state, report, err := loadEntry(entry, tensors, dev, o, touched)
		if err == nil {
			report.Notes = append(notes, report.Notes...)
			if i > 0 {
				report.note("checkpoint: iteration %d is used instead", entry.Iteration)
			}
			return state, report, nil
		}
		var damage *Damage
		if !errors.As(err, &damage) {
			return state, Report{Notes: notes}, err
		}
		notes = append(notes, fmt.Sprintf("checkpoint: iteration %d is damaged: %v", entry.Iteration, err))
	}
	return State{}, Report{Notes: notes}, exitcode.Errorf(exitcode.IO, "no undamaged checkpoint in %s:\n%s\n`monotron inspect checkpoint %s --verify` lists the damaged files; restore those files from a copy, or load another folder", dir, strings.Join(notes, "\n"), argv.Quoted(dir))
}

// chosen lists the checkpoints that may be loaded, in order.
func chosen(dir string, step int64) ([]Entry, []string, error) {
	if step < 0 {
		return candidates(dir)
	}
	list, err := readable(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range list {
		if e.Iteration == step {
			return []Entry{e}, nil, nil
		}
	}
	return nil, nil, exitcode.Errorf(exitcode.NoInput, "checkpoint: %s has no iteration %d; it has %s", dir, step, iterations(list))
}

func iterations(list []Entry) string {
	if len(list) == 0 {
		return "none"
	}
	names := make([]string, len(list))
	for i, e := range list {
		names[i] = fmt.Sprint(e.Iteration)
	}
	return strings.Join(names, ", ")
}

func loadEntry(e Entry, tensors []mpu.Stored, dev *device.Device, o LoadOptions, touched map[string]bool) (State, Report, error) {
	f, err := openLocked(e.Path)
	if err != nil {
		return State{}, Report{}, err
	}
	defer f.Close()
	src := newSource(f)
	defer src.Close()
	return loadFrom(src, tensors, dev, o, touched)
}

// LoadSource is Load from an open checkpoint of any format.
func LoadSource(src checkpoint.Source, tensors []mpu.Stored, dev *device.Device, o LoadOptions) (State, Report, error) {
	for _, t := range tensors {
		if err := checkStored(t); err != nil {
			return State{}, Report{}, err
		}
	}
	return loadFrom(src, tensors, dev, o, map[string]bool{})
}

// loadFrom is the one way from a checkpoint to tensors: what is there and fits, then its
// bytes, which native files bring by themselves and others box by box.
func loadFrom(src checkpoint.Source, tensors []mpu.Stored, dev *device.Device, o LoadOptions, touched map[string]bool) (State, Report, error) {
	info := src.Info()
	report := Report{Folder: info.Path, Iteration: src.State().Iteration, Notes: info.Notes}
	found, err := match(src.State(), src.Tensors(), tensors, o, touched, &report)
	if err != nil {
		return src.State(), Report{}, fmt.Errorf("checkpoint: %s: %w", info.Path, err)
	}
	fill := fillByBoxes
	if _, native := src.(*source); native {
		fill = fillByPieces
	}
	if err := fill(src, found, tensors, dev, &report, touched); err != nil {
		return State{}, Report{}, err
	}
	if err := dev.Sync(); err != nil {
		return State{}, Report{}, fmt.Errorf("checkpoint: writing tensors to the device: %w", err)
	}
	state := src.State()
	return state, report, state.KeepSpecials(info.Specials)
}

// match finds each wanted tensor among those stored, nil where its absence is
// waived, before anything is read. All that does not fit is one error.
func match(state State, stored []checkpoint.Tensor, tensors []mpu.Stored, o LoadOptions, touched map[string]bool, report *Report) ([]*checkpoint.Tensor, error) {
	byName := map[string]*checkpoint.Tensor{}
	for i := range stored {
		byName[stored[i].Name] = &stored[i]
	}
	found := make([]*checkpoint.Tensor, len(tensors))
	// Every wanted tensor: found as it is, to be converted, missing with leave, or wrong.
	wanted := map[string]bool{}
	var wrong []string
	for i, t := range tensors {
		have := byName[t.Name]
		wanted[t.Name] = true
		if have == nil && o.AllowMissing != nil && o.AllowMissing(&state, t.Name) && !touched[t.Name] {
			report.Missing = append(report.Missing, t.Name)
			continue
		}
		why, converts := misfit(have, t)
		switch {
		case why == "":
			found[i] = have
		case converts && o.Convert:
			found[i] = have
			report.Converted = append(report.Converted, fmt.Sprintf("%s (%s to %s)", t.Name, have.DType, dtypeName[t.Tensor.DType]))
		default:
			wrong = append(wrong, fmt.Sprintf("tensor %q %s", t.Name, why))
		}
	}
	// What is stored and not wanted is reported.
	for _, t := range stored {
		if !wanted[t.Name] {
			report.Extra = append(report.Extra, t.Name)
		}
	}
	if len(wrong) > 0 {
		return nil, exitcode.Errorf(exitcode.IO, "%w: %s", ErrMisfit, shortList(wrong, 1))
	}
	return found, nil
}

// misfit says why a stored tensor cannot fill t; empty where it can. converts
// reports whether only the float type differs.
func misfit(have *checkpoint.Tensor, t mpu.Stored) (why string, converts bool) {
	want := dtypeName[t.Tensor.DType]
	switch {
	case have == nil:
		return "is not in the checkpoint", false
	case !equal(have.Shape, t.Global):
		return fmt.Sprintf("has the shape %v in the checkpoint, but %v in this run", have.Shape, t.Global), false
	case have.DType != want:
		return fmt.Sprintf("is %s in the checkpoint, but %s in this run (the precision flags differ)", have.DType, want), isFloat(have.DType) && isFloat(want)
	}
	return "", false
}

func isFloat(dtype string) bool {
	switch dtype {
	case "F64", "F32", "BF16", "F16":
		return true
	}
	return false
}

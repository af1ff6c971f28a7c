package training

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/checkpoint/remote"
	"monotron/megatron/config"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/tokenizer"
)

// Version of the program, for checkpoints; set by the build.
var Version = "dev"

// stored lists the tensors a checkpoint keeps: values, main parameters, moments.
func (r *Run) stored() []mpu.Stored {
	all := append(r.Engine.Weights(), r.Engine.Scales()...)
	if !r.Config.Checkpoint.NoSaveOptim {
		all = append(all, r.Engine.Optimizer.Stored()...)
	}
	if r.base == nil {
		return all
	}
	return slices.DeleteFunc(all, func(t mpu.Stored) bool { return !strings.Contains(t.Name, mpu.AdapterPrefix) && !r.retrains(t.Name) })
}

// retrains reports whether a stored tensor is of a weight that is trained with the adapter.
func (r *Run) retrains(stored string) bool {
	list := r.Config.Model.Retrained
	return list != nil && slices.ContainsFunc(list.Names, func(name string) bool { return strings.HasSuffix(stored, "."+name) })
}

// Keys of State.Extra.
const (
	adamSteps     = "optimizer_steps"
	attentionKind = "attention" // Engine.Attention
)

// state is what a checkpoint keeps in addition to the tensors.
func (r *Run) state() (s native.State, err error) {
	// Where the run is, and the settings it was started with.
	s = native.State{Iteration: r.Engine.Iteration, ConsumedTrain: r.at.ConsumedTrain, ConsumedValid: r.at.ConsumedValid,
		SkippedTrain: r.at.SkippedTrain, Seed: uint64(r.Config.Seed), Version: Version, Extra: map[string]json.RawMessage{}}
	if s.Config, err = json.Marshal(kept(&r.Config)); err != nil {
		return s, err
	}
	// State of the schedule and of the loss scale.
	if s.Scheduler, err = json.Marshal(r.Engine.Scheduler.State()); err != nil {
		return s, err
	}
	if s.Scaler, err = json.Marshal(r.Engine.Scaler.State()); err != nil {
		return s, err
	}
	// In addition, what only some runs have: the kernels that attention uses, the order of samples,
	// the base of an adapter, the best loss, answers under way.
	if r.Engine.Attention != "" {
		if s.Extra[attentionKind], err = json.Marshal(r.Engine.Attention); err != nil {
			return s, err
		}
	}
	if cyclic(&r.Config) {
		if s.Extra[checkpoint.ExtraOrder], err = json.Marshal(r.order); err != nil {
			return s, err
		}
	}
	if r.base != nil {
		if s.Extra[checkpoint.ExtraBase], err = json.Marshal(r.base); err != nil {
			return s, err
		}
	}
	if r.best != nil {
		if s.Extra[bestKey], err = json.Marshal(r.best); err != nil {
			return s, err
		}
	}
	if r.sampler != nil && r.sampler.answers != nil {
		if s.Extra[answersKey], err = json.Marshal(r.sampler.answers); err != nil {
			return s, err
		}
	}
	if s.Extra[adamSteps], err = json.Marshal(r.Engine.Optimizer.Steps); err != nil {
		return s, err
	}
	return s, s.KeepSpecials(r.specials)
}

// kept is the Config as a checkpoint keeps it: a tokenizer's files are found from
// another folder too.
func kept(c *config.Run) *config.Run {
	kept := *c
	kept.Tokenizer = c.Tokenizer.Absolute()
	return &kept
}

// CheckpointFlags are the flags that iteration step of folder, or where step is
// negative its newest sound checkpoint, was trained with, for
// --use-checkpoint-args; nil without a checkpoint.
func CheckpointFlags(folder string, step int64) (map[string][]string, error) {
	folder, err := remote.Local(context.Background(), folder, step, nil)
	if errors.Is(err, native.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// Another program's checkpoint has flags of its own, in terms of ours.
	if format := foreign(folder, step); format != "" {
		return foreignFlags(format, folder, step)
	}
	if _, err := native.Latest(folder); errors.Is(err, native.ErrNone) {
		return nil, nil
	}
	// Ours has the flags as they were given.
	f, err := native.OpenSound(folder, step)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var c struct {
		Flags     map[string][]string
		Model     *spec.Model
		SeqLength int
		Tokenizer tokenizer.Config
	}
	if err := json.Unmarshal(f.Manifest.State.Config, &c); err != nil {
		return nil, exitcode.Errorf(exitcode.IO, "%s: the settings in the checkpoint cannot be read: %w", f.Path, err)
	}
	kept, _ := f.Tokenizer(c.Tokenizer)
	switch {
	case c.Flags != nil:
		return withTokenizer(c.Flags, kept), nil
	case c.Model != nil: // converted from another format
		return withTokenizer(shapeFlags(c.Model, c.SeqLength), kept), nil
	}
	return nil, exitcode.Errorf(exitcode.IO, "%s does not contain the flags with which the model was trained", f.Path)
}

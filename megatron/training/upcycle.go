package training

import (
	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/native"
	"monotron/mpu"
)

// upcycle starts the run's mixture of experts from a dense checkpoint, at iteration 0
// (--moe-use-upcycling). It is for the first run alone: what that has saved is a mixture.
func (r *Run) upcycle(dir string, step int64) error {
	// A run that has saved continues from what it saved.
	c := &r.Config.Checkpoint
	if c.Save != "" {
		if _, err := native.Latest(c.Save); err == nil || foreign(c.Save, -1) != "" {
			return exitcode.Errorf(exitcode.Usage, "--save %s already has a checkpoint, but --moe-use-upcycling is only for the first run; to continue, leave --moe-use-upcycling out and give --load %s", c.Save, argv.Quoted(c.Save))
		}
	}
	// The dense checkpoint, in whatever format it is.
	format := foreign(dir, step)
	if format == "" {
		format = checkpoint.Native
	}
	src, err := all.OpenAs(format, dir, checkpoint.OpenOptions{Step: step, KeepPadding: r.Config.Model.PaddedVocabCounts})
	if err != nil {
		return err
	}
	defer src.Close()
	// Its MLPs become experts, in the type of the run.
	m := &r.Config.Model
	dense := checkpoint.Cast(checkpoint.WeightsOnly(src), func(checkpoint.Tensor) string { return storedType(r.Config.Precision) })
	mixture, err := checkpoint.Upcycle(dense, m, func(name string, out []float32) { mpu.Normals(uint64(r.Config.Seed), name, out, m.InitStd) })
	if err != nil {
		return err
	}
	if f, g := src.Info().Model.FFNHiddenSize, c.UpcyclingGranularity; f != g*m.Experts.FFNHiddenSize {
		return exitcode.Errorf(exitcode.Usage, "--moe-upcycling-granularity %d: the MLP of %s has width %d, but experts have width %d; use granularity %d", g, dir, f, m.Experts.FFNHiddenSize, f/m.Experts.FFNHiddenSize)
	}
	r.log.note("each MLP of %s is converted to %d experts: it is divided into slices of 1/%d of its channels, and each slice is used %d times", dir, m.Experts.Num, c.UpcyclingGranularity, m.Experts.Num/c.UpcyclingGranularity)
	return r.loadWeights(fromSource(checkpoint.Finite(mixture), r), true)
}

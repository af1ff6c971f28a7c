package training

import (
	"monotron/csrc/device"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/hf"
)

// loadQuantized takes the weights that a new adapter is on, those of linear layers rounded as
// --quantize-base says. What the run saves has the rounded values: it continues from there as it is.
func (r *Run) loadQuantized(dir string, step int64, finetune bool) error {
	// The checkpoint, in whatever format it is.
	format := foreign(dir, step)
	if format == "" {
		format = checkpoint.Native
	}
	src, err := all.OpenAs(format, dir, checkpoint.OpenOptions{Step: step, KeepPadding: r.Config.Model.PaddedVocabCounts})
	if err != nil {
		return err
	}
	defer src.Close()
	if format != checkpoint.Native {
		if err := r.foreignModel(src.Info()); err != nil {
			return err
		}
	}
	// Weights of linear layers are rounded as they are read.
	base, err := hf.Quantized(src, r.Config.Adapter.Quantize, r.Config.Adapter.DoubleQuant)
	if err != nil {
		return err
	}
	if hf.OfBitsandbytes(src.Info()) {
		r.log.note("--quantize-base: the weights of %s are already %s and stay unchanged", dir, src.Info().Quantization)
	}
	if err := r.loadWeights(fromSource(checkpoint.Finite(base), r), finetune || src.State().Iteration == 0); err != nil {
		return err
	}
	if n := r.Engine.PackedBytes(); n > 0 {
		r.log.note("--quantize-base: the frozen weights use %s of memory", device.Size(n))
	}
	return nil
}

package convert

import (
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
)

// view shows the input as the output will hold it.
func (o *options) view(original checkpoint.Source) (checkpoint.Source, error) {
	src := original
	if !o.allowNaN {
		src = checkpoint.Finite(src)
	}
	// Layers of multi-token prediction: left out where the output's format cannot represent them.
	switch o.to {
	case checkpoint.Native, checkpoint.MegatronTorch, checkpoint.MegatronTorchDist:
	case checkpoint.HF:
		if decoder, n := checkpoint.WithoutMTP(src); n > 0 && !o.holdsAhead(decoder.Info(), src.Info().Model) {
			src, o.aheadLeft = decoder, n
		}
	default:
		src, o.aheadLeft = checkpoint.WithoutMTP(src)
	}
	// Values: as the output's norms have them, left out, retyped.
	src = o.plainNorms(src)
	if o.weightsOnly {
		src = checkpoint.WeightsOnly(src)
	}
	if o.dtype != "" {
		src = checkpoint.Retype(src, o.dtype)
	}
	// What single formats need: zeros for biases, a tokenizer's files, a layout.
	if o.to == checkpoint.NanoGPT {
		src, o.zeroed = checkpoint.ZeroBiases(src)
	}
	o.write.Tokenizer = o.tokenizerFolder(original.Info())
	if o.to == checkpoint.MegatronTorch || o.to == checkpoint.MegatronTorchDist {
		return src, o.stages(src.Info().Model)
	}
	return src, nil
}

// plainNorms adds 1 to the weights of norms where the output's format has no --apply-layernorm-1p.
func (o *options) plainNorms(src checkpoint.Source) checkpoint.Source {
	switch o.to {
	case checkpoint.HF, checkpoint.GGUF:
		src, o.plain = hf.PlainNorms(src, o.write)
	case checkpoint.NanoGPT, checkpoint.LLMC:
		var changed bool
		if src, changed = checkpoint.NormWeights(src, false); changed {
			o.plain = checkpoint.PlainNormsNote
		}
	}
	return src
}

// holdsAhead reports whether the family that a decoder is written as has layers of multi-token prediction as m has them.
func (o *options) holdsAhead(decoder checkpoint.Info, m *spec.Model) bool {
	family, err := hf.ChooseFamily(decoder, o.write)
	if err != nil || hf.Expresses(family, m) != nil {
		return false
	}
	o.write.Family = family
	return true
}

// stages refuses a pipeline that the layers do not fill evenly.
func (o *options) stages(m *spec.Model) error {
	if m.NumLayers%max(1, o.write.Layout.PP*o.write.Layout.VP) != 0 {
		return exitcode.Errorf(exitcode.Usage, "--pipeline-model-parallel-size %[2]d: the %[1]d layers of the model cannot be divided evenly among %[2]d stages of %[3]d chunks; use other sizes", m.NumLayers, o.write.Layout.PP, o.write.Layout.VP)
	}
	return nil
}

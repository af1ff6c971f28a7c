package convert

import (
	"monotron/fault"
	"monotron/megatron/formats"
	"monotron/megatron/spec"
)

// view shows the input as the output will hold it.
func (o *options) view(original formats.Source) (formats.Source, error) {
	src := original
	if !o.allowNaN {
		src = formats.Finite(src)
	}
	if o.weightsOnly {
		src = formats.WeightsOnly(src)
	}
	if o.dtype != "" {
		src = formats.Retype(src, o.dtype)
	}
	if o.to == formats.NanoGPT {
		src, o.zeroed = formats.ZeroBiases(src)
	}
	o.write.Tokenizer = o.tokenizerFolder(original.Info())
	if o.to == formats.MegatronTorch || o.to == formats.MegatronTorchDist {
		return src, o.stages(src.Info().Model)
	}
	return src, nil
}

// stages refuses a pipeline that the layers do not fill evenly.
func (o *options) stages(m *spec.Model) error {
	if m.NumLayers%max(1, o.write.Layout.PP*o.write.Layout.VP) != 0 {
		return fault.Errorf(fault.Usage, "%d layers do not divide among %d pipeline stages of %d chunks", m.NumLayers, o.write.Layout.PP, o.write.Layout.VP)
	}
	return nil
}

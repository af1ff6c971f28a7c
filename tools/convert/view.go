package convert

import (
	"monotron/fault"
	"monotron/megatron/checkpoint/formats"
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
	o.write.Tokenizer = o.tokenizerFolder(original.Info())
	if o.to == formats.MegatronTorch || o.to == formats.MegatronTorchDist {
		return o.padded(src)
	}
	return src, nil
}

// padded is src with the vocabulary's padding of the layout to come.
func (o *options) padded(src formats.Source) (formats.Source, error) {
	info := src.Info()
	m := *info.Model
	m.PaddedVocabSize = spec.PadVocab(m.VocabSize, o.divisor, o.write.Layout.TP)
	if m.NumLayers%max(1, o.write.Layout.PP*o.write.Layout.VP) != 0 {
		return nil, fault.Errorf(fault.Usage, "%d layers do not divide among %d pipeline stages of %d chunks", m.NumLayers, o.write.Layout.PP, o.write.Layout.VP)
	}
	info.Model = &m
	return &described{src, info}, nil
}

// described is a Source with another description.
type described struct {
	formats.Source
	info formats.Info
}

func (d *described) Info() formats.Info { return d.info }

package checkpoint

import (
	"strings"

	"monotron/megatron/spec"
)

// mtpPrefix begins the names of layers of multi-token prediction.
const mtpPrefix = "mtp."

// WithoutMTP shows src without its layers of multi-token prediction, which formats and programs
// that compute only the next token do not know; left is their number.
func WithoutMTP(src Source) (decoder Source, left int) {
	m := src.Info().Model
	if m == nil || m.MTP == nil {
		return src, 0
	}
	ahead := func(t Tensor) bool {
		for _, kind := range []string{Model, Main, ExpAvg, ExpSq} {
			if name, ok := strings.CutPrefix(t.Name, kind); ok {
				return strings.HasPrefix(name, mtpPrefix)
			}
		}
		return false
	}
	alone := *m
	alone.MTP = nil
	return &decoderOnly{Select(src, func(t Tensor) bool { return !ahead(t) }), &alone}, m.MTPLayers()
}

type decoderOnly struct {
	Source
	model *spec.Model
}

func (d *decoderOnly) Info() Info {
	info := d.Source.Info()
	info.Model = d.model
	return info
}

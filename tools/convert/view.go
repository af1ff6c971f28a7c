package convert

import (
	"strings"

	"monotron/fault"
	"monotron/megatron/checkpoint/formats"
	"monotron/megatron/spec"
	"monotron/mpu"
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
		src = retype(src, o.dtype)
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

// retype shows the weights of src in another type. Where there are moments,
// nothing is lost by it: f32 values that become narrow go on as masters, and
// narrow values that become f32 are their masters.
func retype(src formats.Source, dtype string) formats.Source {
	r := &retyped{Source: formats.Cast(src, func(t formats.Tensor) string {
		if strings.HasPrefix(t.Name, formats.Model) {
			return dtype
		}
		return ""
	}), original: src, from: map[string]string{}}
	have := map[string]formats.Tensor{}
	for _, t := range src.Tensors() {
		have[t.Name] = t
	}
	for _, t := range r.Source.Tensors() {
		name, value := strings.CutPrefix(t.Name, formats.Model)
		master, isMaster := strings.CutPrefix(t.Name, formats.Main)
		_, hasMaster := have[formats.Main+name]
		_, trained := have[formats.ExpAvg+name]
		switch {
		case isMaster && dtype == "F32" && have[formats.Model+master].Name != "":
			continue // it is the value now
		case value && dtype == "F32" && hasMaster:
			r.from[t.Name] = formats.Main + name
		case value && dtype != "F32" && have[t.Name].DType == "F32" && trained && !hasMaster:
			r.list = append(r.list, formats.Tensor{Name: formats.Main + name, DType: "F32", Shape: t.Shape})
			r.from[formats.Main+name] = t.Name
		}
		r.list = append(r.list, t)
	}
	return r
}

// retyped is what Cast gives, with some tensors read under other names.
type retyped struct {
	formats.Source
	original formats.Source
	list     []formats.Tensor
	from     map[string]string
}

func (r *retyped) Tensors() []formats.Tensor { return r.list }

func (r *retyped) Read(name string, box mpu.Piece, dst []byte) error {
	if other, ok := r.from[name]; ok {
		return r.original.Read(other, box, dst)
	}
	return r.Source.Read(name, box, dst)
}

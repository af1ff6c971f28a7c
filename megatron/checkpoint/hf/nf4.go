package hf

import (
	"slices"
	"sync"

	"monotron/internal/exitcode"
	"monotron/internal/nf4"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
)

// quantization is what config.json says of weights that bitsandbytes has quantised.
type quantization struct {
	Method string `json:"quant_method"`
	In4Bit bool   `json:"load_in_4bit"`
	Type   string `json:"bnb_4bit_quant_type"`
}

// nf4 tells whether the weights are NF4.
func (q *quantization) nf4() bool { return q.Method == "bitsandbytes" && q.In4Bit && q.Type == "nf4" }

// dequantized shows weights of NF4 as what their codes stand for, in the type that the weight
// had: a read takes the codes of its elements, and all scales are in memory.
type dequantized struct {
	Files
	weights map[string]*quantizedWeight // by their names in the files

	mu   sync.Mutex
	last string // a transposed weight whose codes are kept
	kept []byte
}

// quantizedWeight is one of them; a transposed one is quantised as [out, in], and [in, out] for
// who reads it.
type quantizedWeight struct {
	scales     *nf4.Quantized
	info       safetensors.Info
	transposed bool
}

// dequantize reads the scales of a folder's weights, whose names and shapes are mp's.
func dequantize(files Files, mp *Mapping) (*dequantized, error) {
	d := &dequantized{Files: files, weights: map[string]*quantizedWeight{}}
	conv1D := map[string]bool{}
	for _, s := range mp.Sources() {
		conv1D[s.Name] = s.Transposed
	}
	for _, name := range files.Names() {
		name, part := nf4.PartOf(name)
		if !part || d.weights[name] != nil {
			continue
		}
		q, dtype, shape, err := nf4.Read(files, name)
		if err != nil {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", files.Where(name), err)
		}
		w := &quantizedWeight{scales: q, transposed: conv1D[name], info: safetensors.Info{Name: name, DType: dtype, Shape: slices.Clone(shape)}}
		if w.transposed {
			slices.Reverse(w.info.Shape)
		}
		w.info.Bytes = elements(shape) * checkpoint.Width(dtype)
		d.weights[name] = w
	}
	return d, nil
}

// Names leaves out the parts of weights.
func (d *dequantized) Names() (names []string) {
	for _, name := range d.Files.Names() {
		if _, part := nf4.PartOf(name); !part {
			names = append(names, name)
		}
	}
	return names
}

// Info is that of the weight before it was quantised.
func (d *dequantized) Info(name string) (safetensors.Info, bool) {
	if w := d.weights[name]; w != nil {
		return w.info, true
	}
	return d.Files.Info(name)
}

// ReadAt fills dst with complete elements.
func (d *dequantized) ReadAt(name string, dst []byte, at int64) error {
	w := d.weights[name]
	if w == nil {
		return d.Files.ReadAt(name, dst, at)
	}
	width := checkpoint.Width(w.info.DType)
	from, values := at/width, make([]float32, int64(len(dst))/width)
	if at%width != 0 || int64(len(dst))%width != 0 || at+int64(len(dst)) > w.info.Bytes {
		return exitcode.Errorf(exitcode.Internal, "tensor %q: %d bytes from %d on do not fall on elements of %s", name, len(dst), at, w.info.DType)
	}
	var err error
	if w.transposed {
		err = d.transposed(name, w, values, from)
	} else {
		packed := make([]byte, (from+int64(len(values))+1)/2-from/2)
		if err = d.Files.ReadAt(name, packed, from/2); err == nil {
			w.scales.Values(values, packed, from)
		}
	}
	if err != nil {
		return err
	}
	_, _ = safetensors.Encode(dst[:0], w.info.DType, values) // nf4.Read knows the type
	return nil
}

// transposed fills values with elements from `from` on of a weight [in, out] that is kept as
// [out, in].
func (d *dequantized) transposed(name string, w *quantizedWeight, values []float32, from int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	in, out := w.info.Shape[0], w.info.Shape[1]
	if d.last != name {
		d.last, d.kept = "", make([]byte, (in*out+1)/2)
		if err := d.Files.ReadAt(name, d.kept, 0); err != nil {
			return err
		}
		d.last = name
	}
	for i := range values {
		at := from + int64(i)
		theirs := at%out*in + at/out
		w.scales.Values(values[i:i+1], d.kept[theirs/2:], theirs)
	}
	return nil
}

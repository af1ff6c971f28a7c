package hf

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"monotron/internal/exitcode"
	"monotron/internal/nf4"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
)

// codes are how the elements of a weight lie in a file.
type codes interface {
	// span is which stored bytes hold n elements from one on.
	span(from, n int64) (at, bytes int64)
	// values are what elements from one on stand for; stored begins at its span.
	values(dst []float32, stored []byte, from int64)
}

// nf4Codes are two a byte.
type nf4Codes struct{ *nf4.Quantized }

func (c nf4Codes) span(from, n int64) (at, bytes int64) { return from / 2, (from+n+1)/2 - from/2 }
func (c nf4Codes) values(dst []float32, stored []byte, from int64) {
	c.Values(dst, stored, from)
}

// dequantized shows quantised weights as what their codes stand for, in the type that the weight
// had: a read takes the codes of its elements, and all scales are in memory.
type dequantized struct {
	Files
	weights map[string]*quantizedWeight // by their names in the files
	partOf  func(name string) (weight string, is bool)

	mu   sync.Mutex
	last string // a transposed weight whose codes are kept
	kept []byte
}

// quantizedWeight is one of them; a transposed one is quantised as [out, in], and [in, out] for
// who reads it.
type quantizedWeight struct {
	codes      codes
	info       safetensors.Info
	transposed bool
}

// dequantize reads the scales of a folder's weights, whose names and shapes are mp's. Weights of int8 and FP8, which
// do not say their own type, are read as what config.json says.
func dequantize(files Files, mp *Mapping, config *Config) (*dequantized, error) {
	d := &dequantized{Files: files, partOf: nf4.PartOf, weights: map[string]*quantizedWeight{}}
	// How a weight's scales are read, by the way it is quantised.
	read := func(name string) (codes, string, []int64, error) {
		q, dtype, shape, err := nf4.Read(files, name)
		return nf4Codes{q}, dtype, shape, err
	}
	switch config.Quantization {
	case Int8:
		d.partOf = partOf(int8Scales, int8Format)
		read = func(name string) (codes, string, []int64, error) {
			c, shape, err := readInt8(files, name)
			return c, cmp.Or(config.DType, "F16"), shape, err
		}
	case FP8:
		d.partOf = partOf(fp8Scales, fp8Activation)
		read = func(name string) (codes, string, []int64, error) {
			c, shape, err := readFP8(files, name, config.Blocks)
			return c, cmp.Or(config.DType, "BF16"), shape, err
		}
	}
	// GPT-2's weights are stored transposed.
	conv1D := map[string]bool{}
	for _, s := range mp.Sources() {
		conv1D[s.Name] = s.Transposed
	}
	// Every weight of which there is a part.
	for _, name := range files.Names() {
		name, part := d.partOf(name)
		if !part || d.weights[name] != nil {
			continue
		}
		q, dtype, shape, err := read(name)
		if err != nil {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", files.Where(name), err)
		}
		w := &quantizedWeight{codes: q, transposed: conv1D[name], info: safetensors.Info{Name: name, DType: dtype, Shape: slices.Clone(shape)}}
		if w.transposed {
			slices.Reverse(w.info.Shape)
		}
		w.info.Bytes = elements(shape) * checkpoint.Width(dtype)
		d.weights[name] = w
	}
	if config.Quantization == FP8 {
		return d, d.unscaled()
	}
	return d, nil
}

// Names leaves out the parts of weights.
func (d *dequantized) Names() (names []string) {
	for _, name := range d.Files.Names() {
		if _, part := d.partOf(name); !part {
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
		return exitcode.Errorf(exitcode.Internal, "internal error: tensor %q: %d bytes from byte %d do not contain complete elements of type %s; report this, and include the command line", name, len(dst), at, w.info.DType)
	}
	var err error
	if w.transposed {
		err = d.transposed(name, w, values, from)
	} else {
		first, bytes := w.codes.span(from, int64(len(values)))
		stored := make([]byte, bytes)
		if err = d.Files.ReadAt(name, stored, first); err == nil {
			w.codes.values(values, stored, from)
		}
	}
	if err != nil {
		return err
	}
	_, _ = safetensors.Encode(dst[:0], w.info.DType, values) // dequantize knows the type
	return nil
}

// transposed fills values with elements from `from` on of a weight [in, out] that is kept as
// [out, in].
func (d *dequantized) transposed(name string, w *quantizedWeight, values []float32, from int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	in, out := w.info.Shape[0], w.info.Shape[1]
	if d.last != name {
		_, bytes := w.codes.span(0, in*out)
		d.last, d.kept = "", make([]byte, bytes)
		if err := d.Files.ReadAt(name, d.kept, 0); err != nil {
			return err
		}
		d.last = name
	}
	for i := range values {
		at := from + int64(i)
		theirs := at%out*in + at/out
		first, _ := w.codes.span(theirs, 1)
		w.codes.values(values[i:i+1], d.kept[first:], theirs)
	}
	return nil
}

// partOf finds the weight NAME.weight that a tensor NAME+suffix is a part of.
func partOf(suffixes ...string) func(name string) (weight string, is bool) {
	return func(name string) (string, bool) {
		for _, suffix := range suffixes {
			if module, is := strings.CutSuffix(name, suffix); is {
				return module + ".weight", true
			}
		}
		return "", false
	}
}

package hf

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
)

// Int8 is WriteOptions.Quantization of weights as bitsandbytes quantises them to 8 bits a row (Dettmers et
// al., arXiv 2208.07339): a row is rounded to its largest magnitude in steps of 1/127.
const Int8 = "int8"

// Parts of an int8 weight NAME.weight: NAME.SCB has the largest magnitude of each row, in f32;
// NAME.weight_format says how the codes lie: 0 is row by row.
const (
	int8Scales = ".SCB"
	int8Format = ".weight_format"
)

// int8Codes are one a byte, with a scale for each row of `in` elements.
type int8Codes struct {
	scales []float32
	in     int64
}

func (c *int8Codes) span(from, n int64) (at, bytes int64) { return from, n }

func (c *int8Codes) values(dst []float32, stored []byte, from int64) {
	for i := range dst {
		scaled := float32(int8(stored[i])) * c.scales[(from+int64(i))/c.in] // rounded before it is divided, as bitsandbytes does
		dst[i] = float32(scaled * (1.0 / 127))
	}
}

// readInt8 reads a weight's scales, and checks that its parts fit each other; the codes stay in the file.
func readInt8(f Files, name string) (*int8Codes, []int64, error) {
	// Codes [out, in] and a scale a row.
	module := strings.TrimSuffix(name, ".weight")
	info, ok := f.Info(name)
	if !ok {
		return nil, nil, fmt.Errorf("tensor %q is missing, although its scales %s%s are present", name, module, int8Scales)
	}
	if info.DType != "I8" || len(info.Shape) != 2 || info.Shape[0] < 1 || info.Shape[1] < 1 {
		return nil, nil, fmt.Errorf("tensor %q is %s of shape %v; an int8 weight must be I8 of shape [out, in]", name, info.DType, info.Shape)
	}
	scales, ok := f.Info(module + int8Scales)
	if !ok || scales.DType != "F32" || checkpoint.Volume(scales.Shape) != info.Shape[0] {
		return nil, nil, fmt.Errorf("tensor %q: the scales %s%s are %s %v; they must be F32 [%d]", name, module, int8Scales, scales.DType, scales.Shape, info.Shape[0])
	}
	if format, ok := f.Info(module + int8Format); ok {
		kind := make([]byte, format.Bytes)
		if err := f.ReadAt(module+int8Format, kind, 0); err != nil {
			return nil, nil, err
		}
		if len(kind) != 1 || kind[0] != 0 {
			return nil, nil, fmt.Errorf("tensor %q: weight_format %v is not supported; it must be 0 (row by row); save the model again with a newer bitsandbytes", name, kind)
		}
	}
	// Scales that are finite numbers.
	raw := make([]byte, 4*info.Shape[0])
	if err := f.ReadAt(module+int8Scales, raw, 0); err != nil {
		return nil, nil, err
	}
	c := &int8Codes{in: info.Shape[1]}
	for i := range info.Shape[0] {
		scale := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		if !(scale >= 0) || math.IsInf(float64(scale), 0) {
			return nil, nil, fmt.Errorf("tensor %q: the scale of row %d is %g; it must be finite and not negative", name, i, scale)
		}
		c.scales = append(c.scales, scale)
	}
	return c, info.Shape, nil
}

// int8Parts are the tensors that a file keeps of a weight.
func int8Parts(name string, shape []int64) []safetensors.Info {
	module := strings.TrimSuffix(name, ".weight")
	return []safetensors.Info{{Name: name, DType: "I8", Shape: shape}, {Name: module + int8Scales, DType: "F32", Shape: shape[:1]}, {Name: module + int8Format, DType: "U8", Shape: []int64{}}}
}

// int8Weight is a weight in memory.
type int8Weight struct {
	int8Codes
	codes []byte
}

// quantizeInt8 rounds a weight [out, in] that is taken as f16, as bitsandbytes takes it; a code is the nearest
// of x·(1/most·127), halves to even. A row of zeros has the codes 0.
func quantizeInt8(values []float32, in int64) (*int8Weight, error) {
	half, _ := safetensors.Encode(make([]byte, 0, 2*len(values)), "F16", values)
	wide := make([]float64, len(values))
	safetensors.Decode(wide, "F16", half)
	w := &int8Weight{int8Codes: int8Codes{in: in}, codes: make([]byte, len(values))}
	for from := int64(0); from < int64(len(wide)); from += in {
		row, most := wide[from:from+in], 0.0
		for _, x := range row {
			most = math.Max(most, math.Abs(x))
		}
		if math.IsInf(most, 0) {
			return nil, fmt.Errorf("row %d has a value that is too large for F16, in which the int8 codes are computed; use nf4", from/in)
		}
		w.scales = append(w.scales, float32(most))
		if most == 0 {
			continue
		}
		by := float32(float32(1/float32(most)) * 127) // so PyTorch divides 127 by a tensor
		for i, x := range row {
			w.codes[from+int64(i)] = byte(int8(math.RoundToEven(float64(float32(x) * by))))
		}
	}
	return w, nil
}

// Encode is a part of the weight as a file has it.
func (w *int8Weight) Encode(part, _, _ string, _ []int64) ([]byte, error) {
	switch {
	case strings.HasSuffix(part, int8Format):
		return []byte{0}, nil
	case strings.HasSuffix(part, int8Scales):
		raw, _ := safetensors.Encode(make([]byte, 0, 4*len(w.scales)), "F32", w.scales)
		return raw, nil
	}
	return w.codes, nil
}

// Dequantize gives what elements from one on stand for.
func (w *int8Weight) Dequantize(dst []float32, from int64) { w.values(dst, w.codes[from:], from) }

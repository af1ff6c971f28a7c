package gguf

import (
	"fmt"
	"math"

	"monotron/internal/exitcode"
	"monotron/internal/gguf"
	"monotron/megatron/spec"
)

// ropeFreqs is the tensor of Llama 3's scaling: what each rotation's frequency is divided by.
const ropeFreqs = "rope_freqs.weight"

// factors are the elements of that tensor, in the arithmetic of llama.cpp's converter:
// float32, where a number divided by x is 1/x times the number.
func factors(s *spec.RopeScaling, base float64, dims int) []float32 {
	list := make([]float32, dims/2)
	original, low, high, factor := float32(s.OriginalMax), float32(s.LowFreq), float32(s.HighFreq), float32(s.Factor)
	for i := range list {
		power := float32(math.Pow(base, float64(float32(2*i)/float32(dims))))
		frequency := 1 / power
		length := 1 / frequency * float32(2*math.Pi) // of a wave, in tokens
		switch {
		case length < original/high:
			list[i] = 1
		case length > original/low:
			list[i] = factor
		default:
			smooth := (1/length*original - low) / (high - low)
			list[i] = 1 / ((1-smooth)/factor + smooth)
		}
	}
	return list
}

// scalingOf finds the settings that give a tensor's elements. Only Llama 3's own low and high
// factors are tried, with every power of two as the original length: files that were
// made otherwise are refused.
func scalingOf(f *gguf.File, t gguf.Tensor, base float64, dims int) (*spec.RopeScaling, error) {
	bad := func(why string) error {
		return exitcode.Errorf(exitcode.BadData, "%s: tensor %q %s: only the factors of Llama 3's RoPE scaling are supported", f.Path, t.Name, why)
	}
	if len(t.Dims) != 1 || t.Dims[0] != int64(dims/2) {
		return nil, bad(fmt.Sprintf("has the shape %v, but RoPE rotates %d pairs of channels", t.Shape(), dims/2))
	}
	want := make([]float32, t.Dims[0])
	if err := f.Float32(t, want, 0); err != nil {
		return nil, err
	}
	s := &spec.RopeScaling{LowFreq: 1, HighFreq: 4}
	for _, v := range want {
		s.Factor = math.Max(s.Factor, float64(v))
	}
	if !(s.Factor >= 1) || math.IsInf(s.Factor, 0) {
		return nil, bad("has elements that are below 1 or infinite")
	}
	for _, original := range append([]int{8192}, powers()...) {
		s.OriginalMax = original
		if near(factors(s, base, dims), want) {
			return s, nil
		}
	}
	return nil, bad("has elements that do not follow Llama 3's formula")
}

func powers() (list []int) {
	for k := 3; k <= 24; k++ {
		list = append(list, 1<<k)
	}
	return list
}

// near allows for the last digits of float32 arithmetic, in which writers differ.
func near(a, b []float32) bool {
	for i := range a {
		if !(math.Abs(float64(a[i])-float64(b[i])) <= 1e-5*math.Abs(float64(b[i]))) {
			return false
		}
	}
	return true
}

package spec

import (
	"math"

	"monotron/internal/elementary"
)

// RopeFrequencies are the angles a position turns each pair of channels by:
// base^(-2i/d) for i < d/2 (Su et al., arXiv 2104.09864), divided by the
// interpolation factor, slowed by the Llama-3 rule where the model asks for it.
func (m *Model) RopeFrequencies() []float64 {
	d := m.RotaryDims()
	f := make([]float64, d/2)
	for i := range f {
		f[i] = elementary.Pow(m.RotaryBase, -2*float64(i)/float64(d))
		if s := m.RopeScaling; s != nil {
			f[i] = s.slow(f[i])
		}
		if m.RotaryInterpolation > 0 {
			f[i] /= m.RotaryInterpolation
		}
	}
	return f
}

func (s *RopeScaling) slow(f float64) float64 {
	wavelength := 2 * math.Pi / f
	longest, shortest := float64(s.OriginalMax)/s.LowFreq, float64(s.OriginalMax)/s.HighFreq
	switch {
	case wavelength > longest:
		return f / s.Factor
	case wavelength < shortest:
		return f
	}
	smooth := (float64(s.OriginalMax)/wavelength - s.LowFreq) / (s.HighFreq - s.LowFreq)
	return (1-smooth)*f/s.Factor + float64(smooth*f)
}

// AlibiSlopes are the slopes of ALiBi (Press et al., arXiv 2108.12409): for n
// heads 2^(-8i/n); for n not a power of two those of the power below, then every
// other one of twice that power.
func AlibiSlopes(heads int) []float32 {
	power := 1
	for power*2 <= heads {
		power *= 2
	}
	slopes := make([]float32, 0, heads)
	for i := 1; i <= power; i++ {
		slopes = append(slopes, float32(elementary.Pow(2, -8*float64(i)/float64(power))))
	}
	for i := 1; len(slopes) < heads; i += 2 {
		slopes = append(slopes, float32(elementary.Pow(2, -8*float64(i)/float64(2*power))))
	}
	return slopes
}

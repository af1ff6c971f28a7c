package ref

import (
	"math"
	"slices"

	"monotron/csrc/device"
)

// GradStats adds the segments' statistics to Out, the last first.
func (b *backend) GradStats(a *device.GradStatsArgs) {
	for _, s := range slices.Backward(segments(a.Segments, a.X.Len())) {
		total := b.stats(a.X, s.from, s.to-s.from)
		addTo(a.Out, 0, total[:])
	}
}

// stats sums stretches of 65536 of x's n elements from `at` on, then the stretches in order.
func (b *backend) stats(all device.Tensor, at, n int64) (total [device.Stats]float64) {
	const stretch = 1 << 16
	parts := make([][device.Stats]float64, (n+stretch-1)/stretch)
	b.spread(n, stretch, func(from, to int64) {
		x, s := make([]float64, to-from), &parts[from/stretch]
		load(x, all, at+from)
		for _, v := range x {
			s[device.StatSquares] += v * v
			if math.IsInf(v, 0) || math.IsNaN(v) {
				s[device.StatNonFinite]++
			}
			if v == 0 {
				s[device.StatZeros]++
			}
		}
	})
	for _, p := range parts {
		for i := range total {
			total[i] += p[i]
		}
	}
	return total
}

func (*backend) WeightedSum(a *device.WeightedSumArgs) {
	x, w := vector(a.X), vector(a.W)
	addTo(a.Out, 0, []float64{weightedSum(x, w, a.Bits), sum(w)})
}

// GradScale: a step whose gradients are not finite is skipped; with MaxNorm, clipping by the global norm
// (Pascanu et al., arXiv 1211.5063).
func (*backend) GradScale(a *device.GradScaleArgs) {
	scale := one(a.Hyper, device.HyperLossScale)
	norm, factor, skip := math.Sqrt(one(a.Stats, device.StatSquares))/scale, 1.0, 0.0
	if a.MaxNorm != 0 {
		factor = math.Min(1, float64(a.MaxNorm)/(norm+1e-6))
	}
	if one(a.Stats, device.StatNonFinite) > 0 || a.Others.Given() && one(a.Others, device.StatNonFinite) > 0 {
		skip = 1
	}
	setOne(a.Hyper, device.HyperGradScale, factor/scale)
	setOne(a.Hyper, device.HyperSkip, skip)
	setOne(a.Hyper, device.HyperGradNorm, norm)
}

package ref

import (
	"math"

	"monotron/csrc/device"
)

// CrossEntropyStats: no column at all gives Max −inf and Sum 0.
func (b *backend) CrossEntropyStats(a *device.CrossEntropyStatsArgs) {
	labels := ids(a.Labels)
	b.spread(a.Logits.Shape[0], each(a.Columns), func(from, to int64) {
		x := make([]float64, a.Columns)
		for r := from; r < to; r++ {
			loadRow(x, a.Logits, r)
			top, total, target := math.Inf(-1), 0.0, 0.0
			for _, v := range x {
				top = math.Max(top, v)
			}
			for _, v := range x {
				total += math.Exp(v - top)
			}
			if label := int64(labels[r]) - a.Start; label >= 0 && label < a.Columns {
				target = x[label]
			}
			setOne(a.Max, r, top)
			setOne(a.Sum, r, total)
			setOne(a.Target, r, target)
		}
	})
}

func (*backend) CrossEntropyLoss(a *device.CrossEntropyLossArgs) {
	loss, top, target := vector(a.Sum), vector(a.Max), vector(a.Target)
	for r := range loss {
		loss[r] = math.Log(loss[r]) + top[r] - target[r]
	}
	store(a.Loss, 0, loss)
}

func (b *backend) CrossEntropyGrad(a *device.CrossEntropyGradArgs) {
	labels, scale := ids(a.Labels), 1.0
	if a.Scale.Given() {
		scale = one(a.Scale, 0)
	}
	b.spread(a.Logits.Shape[0], each(a.Columns), func(from, to int64) {
		x := make([]float64, a.Logits.Last())
		p := x[:a.Columns] // the rest, padding, stays 0
		for r := from; r < to; r++ {
			loadRow(p, a.Logits, r)
			top, total, weight := one(a.Max, r), one(a.Sum, r), one(a.Weight, r)*scale
			label := int64(labels[r]) - a.Start
			for i := range p {
				p[i] = math.Exp(p[i]-top) / total
				if int64(i) == label {
					p[i]--
				}
				p[i] *= weight
			}
			storeRow(a.D, r, x)
		}
	})
}

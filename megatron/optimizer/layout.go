package optimizer

import (
	"slices"

	"monotron/mpu"
)

// Parameters lie one after the other in a flat buffer, in reverse order of the
// model, which is the order in which their gradients are complete. The buffer is
// cut into buckets, and each bucket into as many equal shards as there are ranks.
// Values, gradients, main parameters and moments all follow this layout.

// stretch is elements [from, from+n) of the flat buffer.
type stretch struct{ from, n int64 }

func (a stretch) overlap(b stretch) stretch {
	from, to := max(a.from, b.from), min(a.from+a.n, b.from+b.n)
	return stretch{from, max(0, to-from)}
}

// plan is a bucket on paper.
type plan struct {
	stretch
	params []*mpu.Param // in the order of the buffer
	at     []int64      // where each starts, from the bucket's start
}

const alignment = 64 // elements, of every parameter and shard; a multiple of them with Sharding.align

// layout assigns params to buckets, each of which `shards` ranks can cut evenly.
func layout(params []*mpu.Param, shards, ranks int, s Sharding) (buckets []plan) {
	total := int64(0)
	for _, p := range params {
		if !p.Uneven {
			total += p.Len()
		}
	}
	// end: what a bucket's length is a multiple of. 128 elements and, where asked for, 2^16 are Megatron's, for
	// the bandwidth of collectives.
	limit, end := s.limit(total, ranks), s.alignment()*int64(shards)
	if shards > 1 {
		end = lcm(end, 128)
	}
	if s.PadForBandwidth {
		end = lcm(end, 1<<16)
	}
	var now plan
	numel := int64(0)
	closed := func() {
		if now.n = roundUp(now.n, end); now.n > 0 {
			buckets = append(buckets, now)
		}
		now, numel = plan{stretch: stretch{from: now.from + now.n}}, 0
	}
	// A parameter that needs a bucket of its own, or is of another unit, begins one; a full bucket ends.
	for _, p := range slices.Backward(params) {
		if n := len(now.params); n > 0 && s.parts(now.params[n-1], p, shards) {
			closed()
		}
		now.params, now.at = append(now.params, p), append(now.at, now.n)
		now.n += roundUp(p.Len(), s.alignment())
		if numel += p.Len(); limit > 0 && numel >= limit && !s.byUnit() {
			closed()
		}
	}
	closed()
	return buckets
}

// parts reports whether a bucket must end between two neighbours. A tied table whose
// gradient is summed with another stage's has a bucket of its own, so that both
// stages cut it alike; and so has a parameter whose length differs between the ranks of a model, so that they cut
// the others alike, whose partial gradients they sum. What comes and goes by layer has a bucket a layer;
// what is packed and read in stretches, which seldom comes, has a bucket of its own.
func (s Sharding) parts(before, p *mpu.Param, shards int) bool {
	if s.Offloaded.Packed != nil && (before.Strips || p.Strips) {
		return true
	}
	if shards > 1 && (tied(before) || tied(p) || before.Uneven || p.Uneven) {
		return true
	}
	return s.byUnit() && before.Unit != p.Unit
}

// byUnit reports whether a bucket is a layer.
func (s Sharding) byUnit() bool { return s.shardsGradients() || s.transient() }

func tied(p *mpu.Param) bool { return size(p.SumOver) > 1 && p.Role == mpu.Vocabulary }

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

func lcm(a, b int64) int64 {
	g, h := a, b
	for h > 0 {
		g, h = h, g%h
	}
	return a / g * b
}

package optimizer

import (
	"slices"

	"monotron/csrc/device"
	"monotron/mpu"
)

// run is what one call updates: segments of a part of a bucket's shard, all by the same hyper.
type run struct {
	value, main, grad device.Tensor // main is value in f32 training
	m, v              device.Tensor
	codes             coded8 // given: instead of m and v
	apart             bool   // by the rate of --decoupled-lr or --loraplus-lr-ratio
	hyper             device.Tensor
	segments          device.Tensor // i64 [n, 2] of the part; not given: one, all of it
	mults             device.Tensor // f32 [n, 2]: of the learning rate, of the weight decay
	eps               float64       // AdamW's
}

// addRuns makes the runs of a bucket's part: one, and others where the rate of --decoupled-lr or another
// clip is for some of its parameters. Those of offloaded state are never updated as one: they have the tables that
// their pieces read.
func (o *Optimizer) addRuns(b *bucket, p *part) {
	if p.matrix {
		return
	}
	for kind := range 4 * len(o.clips) {
		// A run has one clip, one learning rate and one epsilon: the parameters of the part that agree in them.
		clip, apart, wide := kind/4, kind/2%2 == 1, kind%2 == 1
		r := &run{eps: o.config.AdamEps, value: b.ownValues.Slice(0, p.from, p.n), main: p.main, m: p.m, v: p.v, codes: p.codes, hyper: o.clips[clip].hyper, apart: apart}
		if r.grad = b.ownGrads; r.grad.Given() {
			r.grad = r.grad.Slice(0, p.from, p.n)
		}
		if wide {
			r.eps /= o.config.WidthMult
		}
		if apart {
			r.hyper = o.clips[clip].apart
		}
		// Segments [from, to) of the run's elements, each with multipliers of rate and weight decay.
		var at []int64
		var mults []float32
		rows := int64(0) // on any rank, whatever its shard has
		for _, param := range b.params {
			s, whose := o.shares[param], o.shares[param].part
			if s.n == 0 {
				whose = b.firstRun()
			}
			if o.decoupled(param) != apart || o.wide(param) != wide || o.clipOf(param) != clip || whose != p || o.orthogonal(param) {
				continue
			}
			if rows++; s.n == 0 {
				continue
			}
			s.run, s.index = r, int64(len(at)/2)
			at, mults = append(at, s.start-p.from, s.start-p.from+s.n), append(mults, o.rateMult(param), o.decay(param))
		}
		if rows == 0 {
			continue
		}
		// Memory for as many rows as any rank needs, so that plans of all ranks are alike.
		segments, multipliers := o.device.Arena.Alloc(device.Optimizer, device.I64, rows, 2), o.device.Arena.Alloc(device.Optimizer, device.F32, rows, 2)
		n := int64(len(at) / 2)
		if n == 0 {
			continue
		}
		r.segments, r.mults = segments.Slice(0, 0, n), multipliers.Slice(0, 0, n)
		device.WriteSlice(o.device, r.segments, at)
		device.WriteSlice(o.device, r.mults, mults)
		if !p.away {
			o.runs = append(o.runs, r)
		}
	}
}

// firstRun is the first part that is updated by runs; nil: none is.
func (b *bucket) firstRun() *part {
	for i := range b.parts {
		if p := &b.parts[i]; !p.matrix {
			return p
		}
	}
	return nil
}

// apart reports whether some parameters have a rate of their own.
func (c *Config) apart() bool { return c.DecoupledLR > 0 || c.AdapterUpRatio > 0 }

// decoupled reports whether a parameter has the rate of --decoupled-lr or --loraplus-lr-ratio.
func (o *Optimizer) decoupled(p *mpu.Param) bool {
	role := mpu.Vocabulary
	if o.config.AdapterUpRatio > 0 {
		role = mpu.AdapterUp
	}
	return o.rate.Given() && p.Role == role
}

// hidden reports whether a parameter is a matrix whose both sides grow with the model's width, or the output
// layer: not a norm, a bias, a table of embeddings.
func (o *Optimizer) hidden(p *mpu.Param) bool {
	dims := len(p.Global)
	if p.Each != nil {
		dims--
	}
	return dims > 1 && p.Name != "embedding.word_embeddings.weight" && p.Name != positionTable && !o.decoupled(p)
}

const positionTable = "embedding.position_embeddings.weight"

// wide reports whether AdamW divides a parameter's rate and epsilon by WidthMult.
func (o *Optimizer) wide(p *mpu.Param) bool {
	return o.config.WidthMult != 0 && o.config.Kind == Adam && o.hidden(p)
}

// rateMult is the multiplier of a parameter's learning rate.
func (o *Optimizer) rateMult(p *mpu.Param) float32 {
	switch {
	case o.wide(p):
		return float32(1 / o.config.WidthMult)
	case o.config.WidthMult != 0 && o.config.Kind == SGD && !o.hidden(p) && !o.decoupled(p):
		return float32(o.config.WidthMult)
	case o.config.Matrices() && o.config.Muon.VectorRate > 0 && !o.orthogonal(p) && !o.decoupled(p):
		return float32(o.config.Muon.VectorRate)
	}
	return 1
}

// decay is the multiplier of a parameter's weight decay.
func (o *Optimizer) decay(p *mpu.Param) float32 {
	if p.NoDecay && !(o.config.DecayQKNorm && p.Role == mpu.QKNorm) {
		return 0
	}
	return 1
}

// alone is the run of a segment, or of a piece of it: one segment with the multipliers of its
// parameter's.
func (s *segment) alone(of *segment) *run {
	return &run{value: s.value, main: s.main, grad: s.grad, m: s.m, v: s.v, hyper: of.run.hyper, eps: of.run.eps, mults: of.run.mults.Slice(0, of.index, 1)}
}

func (o *Optimizer) update(r *run) {
	var model device.Tensor
	if r.main.Data != r.value.Data {
		model = r.value
	}
	if o.averaging != nil {
		o.updateAverage(r)
		return
	}
	if r.codes.m.Given() {
		o.updateCoded(r, model)
		return
	}
	switch o.config.vectors() {
	case Lion:
		o.device.Lion(device.LionArgs{Param: r.main, Grad: r.grad, M: r.m, Model: model, Hyper: r.hyper, Segments: r.segments, Mults: r.mults,
			Beta1: float32(o.config.LionBeta1), Beta2: float32(o.config.LionBeta2)})
		return
	case SGD:
		o.device.SGD(device.SGDArgs{Param: r.main, Grad: r.grad, Momentum: r.m, Model: model, Hyper: r.hyper,
			Segments: r.segments, Mults: r.mults, Mu: float32(o.config.SGDMomentum)})
		return
	case Adam, Adam8: // of 8 bits what has no codes
	default:
		panic("optimizer: no update of " + o.config.vectors())
	}
	o.device.AdamW(device.AdamWArgs{Param: r.main, Grad: r.grad, M: r.m, V: r.v, Model: model, Hyper: r.hyper, Segments: r.segments, Mults: r.mults,
		Beta1: float32(o.config.AdamBeta1), Beta2: float32(o.config.AdamBeta2), Eps: float32(r.eps)})
}

// counted is gradients of a clip whose statistics one call adds up.
type counted struct {
	grads, segments device.Tensor
	clip            int
}

// allCounted are the segments that this rank counts, in the order of the model, which is that of the norm's
// sum, but for offloaded ones: neighbours of one bucket are in it the last first, as the op adds
// them.
func (o *Optimizer) allCounted() (all []counted) {
	free := map[*bucket]device.Tensor{} // rows of tables: as many on any rank, whatever its shard has
	for _, b := range o.buckets {
		if !b.ownGrads.Offloaded() {
			free[b] = o.device.Arena.Alloc(device.Optimizer, device.I64, int64(len(b.params)), 2)
		}
	}
	var neighbours []*segment
	closed := func() {
		var at []int64
		for _, s := range slices.Backward(neighbours) {
			at = append(at, s.start, s.start+s.n)
		}
		if n := int64(len(at) / 2); n > 0 {
			b := o.bucketOf[neighbours[0].param]
			table, rest := free[b].Slice(0, 0, n), free[b].Shape[0]-n
			free[b] = free[b].Slice(0, n, rest)
			device.WriteSlice(o.device, table, at)
			all = append(all, counted{b.ownGrads, table, o.clipOf(neighbours[0].param)})
		}
		neighbours = nil
	}
	for _, s := range o.segments {
		if !o.counts(s.param) || s.grad.Offloaded() {
			continue
		}
		if neighbours != nil && (o.bucketOf[s.param] != o.bucketOf[neighbours[0].param] || o.clipOf(s.param) != o.clipOf(neighbours[0].param)) {
			closed()
		}
		neighbours = append(neighbours, s)
	}
	closed()
	return all
}

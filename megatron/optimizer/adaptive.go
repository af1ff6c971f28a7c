package optimizer

import (
	"monotron/csrc/device"
	"monotron/mpu"
)

// Second moments of AdaptiveMuon's directions (--adaptive-muon-moment2-method), as in NVIDIA's
// Emerging-Optimizers: they average squares of Newton-Schulz's output, before it is scaled, and divide it
// by their roots.
const (
	MomentElements = "adamuon" // of each element
	MomentLines    = "normuon" // of each row, or of each column where a matrix has more of these; the direction keeps its norm
)

// allocateMoment2 gives a matrix its moments by lines, where this rank updates elements of it: every rank
// that does has all of them.
func (o *Optimizer) allocateMoment2(m *matrix) {
	if o.config.Kind == AdaptiveMuon && o.config.Muon.Moment2 == MomentLines && o.takes(m, m.family.shard()) {
		m.moment2 = o.device.Arena.Zeroed(device.Optimizer, device.F32, max(m.rows, m.columns))
	}
}

// scaleLines divides the direction of a matrix [rows, columns] by the roots of its moments by lines.
func (o *Optimizer) scaleLines(m *matrix, full device.Tensor) {
	c := &o.config.Muon
	o.device.NorMuon(device.NorMuonArgs{X: full, V: m.moment2, Hyper: o.clips[o.clipOf(m.locals[0].param)].hyper, Beta2: float32(c.Beta2), Eps: float32(c.Eps)})
}

// scaleElements divides elements of a direction by the roots of their moments v.
func (o *Optimizer) scaleElements(v, direction, hyper device.Tensor) {
	c := &o.config.Muon
	o.device.AdaMuon(device.AdaMuonArgs{X: direction, V: v, Hyper: hyper, Beta2: float32(c.Beta2), Eps: float32(c.Eps)})
}

// storedLines adds the moments by lines: a column or a row, as the peer keeps them.
func (o *Optimizer) storedLines(all []mpu.Stored) []mpu.Stored {
	for _, m := range o.matrices {
		if !m.moment2.Given() {
			continue
		}
		shape := []int64{m.rows, 1}
		if m.columns > m.rows {
			shape = []int64{1, m.columns}
		}
		all = append(all, mpu.Stored{Name: StoredMoment2 + m.name, Global: shape, Tensor: m.moment2, Pieces: []mpu.Piece{{From: []int64{0, 0}, Size: shape}}, Write: o.firstOf(m)})
	}
	return all
}

// firstOf reports whether this rank is the first of all that update elements of a matrix.
func (o *Optimizer) firstOf(m *matrix) bool {
	f := m.family
	if rank(f.Cut) > 0 {
		return false
	}
	if !f.sharded() {
		return rank(f.Data) == 0
	}
	for r := range f.shard() {
		if o.takes(m, r) {
			return false
		}
	}
	return rank(f.Across) == 0
}

package ref

import (
	"math"

	"monotron/csrc/device"
)

// deltaHead is the delta rule of one value head of one sample.
type deltaHead struct {
	a            *device.DeltaRuleForwardArgs
	sample, head int64
	batch, heads int64
	dk, dv       int64
	docStart     []int32 // nil: 0
	rate         float64 // −e^ALog
	bias         float64
}

func newDeltaHead(a *device.DeltaRuleForwardArgs, tile int64) *deltaHead {
	heads := a.V.Shape[1]
	h := &deltaHead{a: a, sample: tile / heads, head: tile % heads, batch: int64(a.Batch), heads: heads, dk: a.Q.Last(), dv: a.V.Last()}
	h.rate, h.bias = -math.Exp(one(a.ALog, h.head)), one(a.DtBias, h.head)
	if a.DocStart.Given() {
		h.docStart = ids(a.DocStart.At(h.sample))
	}
	return h
}

func (h *deltaHead) positions() int64 { return h.a.Q.Shape[0] / h.batch }

// first is where the document of a position begins.
func (h *deltaHead) first(position int64) int64 {
	if h.docStart == nil {
		return 0
	}
	return int64(h.docStart[position])
}

// saves reports whether States has what was before a position.
func (h *deltaHead) saves(position int64) bool {
	behind := position - h.first(position)
	return behind > 0 && behind%device.DeltaChunk == 0
}

// saved is the offset of a position's state.
func (h *deltaHead) saved(position int64) int64 {
	return ((h.sample*h.heads+h.head)*h.a.States.Shape[1] + position/device.DeltaChunk) * h.dk * h.dv
}

// row numbers a position's row in queries, keys and values, by their own head.
func (h *deltaHead) row(t device.Tensor, position int64) int64 {
	n := t.Shape[1]
	return (position*h.batch+h.sample)*n + h.head*n/h.heads
}

// at is the offset of a position's number of the head in t [s·b, value heads].
func (h *deltaHead) at(t device.Tensor, position int64) int64 {
	return rowAt(t, position*h.batch+h.sample) + h.head
}

// deltaStep is what a position gives; the vectors are normed, but in a state space.
type deltaStep struct {
	space            bool
	q, k, v          []float64
	qLen, kLen       float64 // that q and k were divided by
	a, beta, g, keep float64 // keep is e^g, 0 where a document begins; in a state space beta is Δ
	free             float64 // in a state space: 1, or 0 where a limit holds Δ
	rest             []float64
}

func (h *deltaHead) newStep() *deltaStep {
	return &deltaStep{space: h.a.StateSpace != 0, q: make([]float64, h.dk), k: make([]float64, h.dk), v: make([]float64, h.dv), rest: make([]float64, h.dv)}
}

// read takes a position's inputs; fresh: a document begins.
func (h *deltaHead) read(x *deltaStep, position int64, fresh bool) {
	loadRow(x.q, h.a.Q, h.row(h.a.Q, position))
	loadRow(x.k, h.a.K, h.row(h.a.K, position))
	loadRow(x.v, h.a.V, h.row(h.a.V, position))
	x.a = one(h.a.A, h.at(h.a.A, position)) + h.bias
	if x.space {
		x.beta, x.free = h.limited(softplus(x.a))
		x.g = h.rate * x.beta
	} else {
		x.qLen, x.kLen = math.Sqrt(dot(x.q, x.q)+1e-6), math.Sqrt(dot(x.k, x.k)+1e-6)
		times(x.q, 1/(x.qLen*math.Sqrt(float64(h.dk))))
		times(x.k, 1/x.kLen)
		x.beta = sigmoid(one(h.a.B, h.at(h.a.B, position)))
		x.g = h.rate * softplus(x.a)
	}
	x.keep = math.Exp(x.g)
	if fresh {
		x.keep = 0
	}
}

// limited is Δ between its limits, and its slope there.
func (h *deltaHead) limited(dt float64) (at, slope float64) {
	low, high := float64(h.a.DtMin), float64(h.a.DtMax)
	switch {
	case dt < low:
		return low, 0
	case high > 0 && dt > high:
		return high, 0
	}
	return dt, 1
}

// passBy adds to the output of a state space what goes by the state.
func (h *deltaHead) passBy(o, v []float64) {
	if h.a.StateSpace != 0 {
		axpy(o, one(h.a.Skip, h.head), v)
	}
}

// decay multiplies by keep; nothing passes a document's beginning, not even infinity.
func decay(row []float64, keep float64) {
	if keep == 0 {
		clear(row)
		return
	}
	times(row, keep)
}

// move makes of the state before a position that behind it.
func (x *deltaStep) move(state []float64) {
	dv := len(x.v)
	copy(x.rest, x.v)
	for i, k := range x.k {
		row := state[i*dv:][:dv]
		decay(row, x.keep)
		if !x.space {
			axpy(x.rest, -k, row)
		}
	}
	for i, k := range x.k {
		axpy(state[i*dv:][:dv], k*x.beta, x.rest)
	}
}

func (b *backend) DeltaRuleForward(a *device.DeltaRuleForwardArgs) {
	b.pool.Run(int64(a.Batch)*a.V.Shape[1], func(_ int, tile int64) {
		h := newDeltaHead(a, tile)
		x, o, state := h.newStep(), make([]float64, h.dv), make([]float64, h.dk*h.dv)
		for position := range h.positions() {
			if a.States.Given() && h.saves(position) {
				store(a.States, h.saved(position), state)
			}
			h.read(x, position, position == h.first(position))
			x.move(state)
			clear(o)
			for i, q := range x.q {
				axpy(o, q, state[int64(i)*h.dv:][:h.dv])
			}
			h.passBy(o, x.v)
			storeRow(a.O, h.row(a.O, position), o)
		}
	})
}

// DeltaRuleBackward has a tile a key head: its value heads add to the same gradients, in order.
func (b *backend) DeltaRuleBackward(a *device.DeltaRuleBackwardArgs) {
	f := &a.Forward
	keyHeads, heads := f.Q.Shape[1], f.V.Shape[1]
	b.pool.Run(keyHeads, func(_ int, key int64) {
		for sample := range int64(f.Batch) {
			var dq, dk [][]float64 // by position
			for range f.Q.Shape[0] / int64(f.Batch) {
				dq, dk = append(dq, make([]float64, f.Q.Last())), append(dk, make([]float64, f.Q.Last()))
			}
			var h *deltaHead
			for head := key * heads / keyHeads; head < (key+1)*heads/keyHeads; head++ {
				h = newDeltaHead(f, sample*heads+head)
				h.backward(a, dq, dk)
			}
			x := h.newStep()
			for position := range h.positions() {
				h.read(x, position, position == h.first(position))
				if !x.space {
					times(dq[position], 1/math.Sqrt(float64(h.dk)))
					times(x.q, math.Sqrt(float64(h.dk)))
					unitBackward(dq[position], x.q, x.qLen)
					unitBackward(dk[position], x.k, x.kLen)
				}
				storeRow(a.DQ, h.row(a.DQ, position), dq[position])
				storeRow(a.DK, h.row(a.DK, position), dk[position])
			}
		}
	})
}

// unitBackward makes of the gradient of y = x/length that of x.
func unitBackward(d, y []float64, length float64) {
	axpy(d, -dot(d, y), y)
	times(d, 1/length)
}

// backward sets the gradients of the head's own inputs and adds those of its normed queries
// and keys, chunk by chunk from the last.
func (h *deltaHead) backward(a *device.DeltaRuleBackwardArgs, dq, dk [][]float64) {
	n := h.positions()
	dstate := make([]float64, h.dk*h.dv)
	var sums deltaSums
	for end := n; end > 0; {
		from := end - 1 // where its chunk begins
		from -= (from - h.first(from)) % device.DeltaChunk
		states := make([][]float64, end-from+1) // before and behind each position
		states[0] = make([]float64, h.dk*h.dv)
		if h.saves(from) {
			load(states[0], h.a.States, h.saved(from))
		}
		x := h.newStep()
		for i := from; i < end; i++ {
			states[i-from+1] = append([]float64(nil), states[i-from]...)
			h.read(x, i, i == h.first(i))
			x.move(states[i-from+1])
		}
		for i := end - 1; i >= from; i-- {
			h.stepBackward(a, x, i, states[i-from], states[i-from+1], dstate, dq[i], dk[i], &sums)
		}
		end = from
	}
	addTo(a.DALog, h.head, []float64{sums.aLog})
	addTo(a.DDtBias, h.head, []float64{sums.dtBias})
	if h.a.StateSpace != 0 {
		addTo(a.DSkip, h.head, []float64{sums.skip})
	}
}

// deltaSums are the gradients of a head's own numbers.
type deltaSums struct{ aLog, dtBias, skip float64 }

// stepBackward makes of dstate behind a position that before it; it adds to sums.
func (h *deltaHead) stepBackward(a *device.DeltaRuleBackwardArgs, x *deltaStep, position int64, before, behind, dstate, dq, dk []float64, sums *deltaSums) {
	h.read(x, position, position == h.first(position))
	x.move(append([]float64(nil), before...)) // for the rest
	do, drest := make([]float64, h.dv), make([]float64, h.dv)
	loadRow(do, a.DO, h.row(a.DO, position))
	for i := range x.k {
		row := dstate[int64(i)*h.dv:][:h.dv]
		dq[i] += dot(behind[int64(i)*h.dv:][:h.dv], do)
		axpy(row, x.q[i], do)
		axpy(drest, x.k[i], row)
		dk[i] += x.beta * dot(row, x.rest)
	}
	dbeta := dot(drest, x.rest)
	times(drest, x.beta)
	dkeep := 0.0
	for i := range x.k {
		row, old := dstate[int64(i)*h.dv:][:h.dv], before[int64(i)*h.dv:][:h.dv]
		if !x.space { // what the state knew of v was taken from it
			dk[i] -= x.keep * dot(old, drest)
			axpy(row, -x.k[i], drest)
		}
		dkeep += dot(row, old)
		decay(row, x.keep)
	}
	dg := dkeep * x.keep
	da := dg * h.rate * sigmoid(x.a)
	if x.space {
		da = (dbeta + dg*h.rate) * x.free * sigmoid(x.a)
		h.passBy(drest, do)
		sums.skip += dot(do, x.v)
	} else {
		setOne(a.DB, h.at(a.DB, position), dbeta*x.beta*(1-x.beta))
	}
	storeRow(a.DV, h.row(a.DV, position), drest)
	setOne(a.DA, h.at(a.DA, position), da)
	sums.dtBias += da
	sums.aLog += dg * x.g
}

package mpu

import (
	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// Dispatcher brings tokens to the experts that they have chosen, and back: four steps, of
// which Forward and Backward, Combine and CombineBackward are pairs. Tokens lie at an
// expert in the order (source rank, token), and a token's results are added up at home in
// the order of its choices: the result does not depend on how many ranks share the experts.
type Dispatcher struct {
	at    ExpertShare
	group *comm.Group // ranks that hold all experts once, the parts of an expert side by side; nil: this one does
	all   bool        // every token goes to every rank (Megatron's allgather dispatcher); else to those that it has chosen (alltoall)

	Capacity func(tokens int64) int64 // choices of one expert by a rank's tokens that are not dropped; nil: all
}

// NewDispatcher makes a dispatcher for the ranks of a group, topology.TPEP; all: see
// --moe-token-dispatcher-type allgather.
func NewDispatcher(at ExpertShare, group *comm.Group, all bool) *Dispatcher {
	if group != nil && group.Size() == 1 {
		group = nil
	}
	return &Dispatcher{at: at, group: group, all: all}
}

// Dispatched holds the tokens that this rank's experts received, and how results return.
type Dispatched struct {
	X       Tensor // [slots, h], by expert
	Weights Tensor // f32 [slots]: of each choice
	Offsets Tensor // i32 [experts here + 1]: where each expert's slots begin
	Leaf    Tensor // i32 [slots]: of each slot, a number that no other leaf has here; none: sums over tokens are not cut

	candidates int64  // tokens here that have chosen some expert of this rank
	rows       Tensor // i32 [slots]: the candidate
	slots      Tensor // i32 [candidates, k]: the slot of each choice; −1: it is not here
	travel     *travel
}

// Exchange is how many tokens one micro-batch sends from this rank to each rank that shares
// the experts, and gets of each.
type Exchange struct{ Sent, Received []int64 }

// Exchange counts the tokens of this micro-batch; both counts are nil if this rank has all experts.
func (at *Dispatched) Exchange() (x Exchange) {
	v := at.travel
	if v == nil {
		return x
	}
	for _, n := range v.sent {
		for range v.parts {
			x.Sent = append(x.Sent, n)
		}
	}
	x.Received = v.received
	return x
}

// Bytes are what this rank has sent to others, of tokens, results and their gradients, since
// it was asked.
func (at *Dispatched) Bytes() (n int64) {
	if at.travel != nil {
		n, at.travel.bytes = at.travel.bytes, 0
	}
	return n
}

// Rows is the number of rows that this rank's experts compute: one for each choice of one of them.
func (at *Dispatched) Rows() int64 { return at.X.Shape[0] }

// During is what a rank computes while tokens or gradients travel; nil: nothing.
type During func() error

func (b During) run() error {
	if b == nil {
		return nil
	}
	return b()
}

// Forward sends tokens x [t,h] to the experts i32 [t,k] that they chose, with weights f32 [t,k]. With
// leaves (--layout-invariant) an expert's tokens from one rank are ordered by leaf.
func (m *Dispatcher) Forward(d *device.Device, s *device.Scope, leaves Leaves, x, experts, weights Tensor, during During) (*Dispatched, error) {
	tmp := d.Arena.Scope(device.Communication)
	defer tmp.Release()
	sent := []Tensor{x, experts, weights}
	if leaves.Chunk > 0 {
		leaf := tmp.Alloc(device.I32, x.Shape[0], 1)
		leaves.number(d, leaf, m.rank()*(x.Shape[0]/leaves.Chunk))
		sent = append(sent, leaf)
	}
	if m.group == nil {
		return m.sort(d, s, leaves, sent, experts.Len()), during.run()
	}
	v, err := m.plan(d, s, leaves, experts)
	if err != nil {
		return nil, err
	}
	arrived, err := v.send(d, tmp, during, sent...)
	if err != nil {
		return nil, err
	}
	if !v.all { // they came in this order
		leaves = Leaves{}
	}
	out := m.sort(d, s, leaves, arrived, v.placed())
	out.travel = v
	v.arrange(d, s, m.at, leaves, arrived[1], out)
	return out, nil
}

// rank is this one's among those that share the experts.
func (m *Dispatcher) rank() int64 {
	if m.group == nil {
		return 0
	}
	return int64(m.group.Rank())
}

// order is ExpertOrder by leaves, where there are any.
func (l Leaves) order(d *device.Device, a device.ExpertOrderArgs) {
	a.Chunk, a.Batch = int32(l.Chunk), int32(l.Batch)
	d.ExpertOrder(a)
}

// sort lays candidates (tokens, their choices, weights and leaves) out by expert.
func (m *Dispatcher) sort(d *device.Device, s *device.Scope, leaves Leaves, candidates []Tensor, slots int64) *Dispatched {
	x, experts, weights := candidates[0], candidates[1], candidates[2]
	tmp := d.Arena.Scope(device.Communication)
	defer tmp.Release()
	out := &Dispatched{candidates: x.Shape[0], slots: s.Alloc(device.I32, experts.Dims()...), Offsets: s.Alloc(device.I32, int64(m.at.Here)+1),
		X: s.Alloc(x.DType, slots, x.Last()), Weights: s.Alloc(weights.DType, slots), rows: s.Alloc(device.I32, slots)}
	rows := tmp.Alloc(device.I32, experts.Len())
	leaves.order(d, device.ExpertOrderArgs{Rows: rows, Slots: out.slots, Offsets: out.Offsets, Experts: experts, Start: int64(m.at.First), Width: 1})
	d.Copy(out.rows, rows.Slice(0, 0, slots))
	d.GatherRows(out.X, x, out.rows)
	d.PlaceChoices(device.PlaceChoicesArgs{Placed: out.Weights, Chosen: weights, Slots: out.slots})
	if len(candidates) > 3 {
		out.Leaf = s.Alloc(device.I32, slots)
		d.GatherRows(out.Leaf.Reshape(slots, 1), candidates[3], out.rows)
	}
	return out
}

// Combine returns the experts' results out [slots,h] to their tokens and adds up those of each: y [t,h].
func (m *Dispatcher) Combine(d *device.Device, at *Dispatched, y, out Tensor) error {
	if at.travel == nil {
		d.CombineRows(y, out, at.slots)
		return nil
	}
	return at.travel.bringBack(d, y, out)
}

// CombineBackward is the gradient of the experts' results, [slots,h].
func (m *Dispatcher) CombineBackward(d *device.Device, s *device.Scope, at *Dispatched, dy Tensor, during During) (Tensor, error) {
	if at.travel != nil {
		return at.travel.sendGradient(d, s, dy, during)
	}
	dout := s.Alloc(dy.DType, at.X.Dims()...)
	d.GatherRows(dout, dy, at.rows)
	return dout, during.run()
}

// Backward sets dx [t,h] and dweights [t,k] from the gradients of X and Weights, dX of type
// ExpertShare.Partial.
func (m *Dispatcher) Backward(d *device.Device, at *Dispatched, dx, dweights, dX, dWeights Tensor) error {
	if at.travel == nil {
		d.CombineRows(dx, dX, at.slots)
		d.PlaceChoices(device.PlaceChoicesArgs{Placed: dWeights, Chosen: dweights, Slots: at.slots, Back: 1})
		return nil
	}
	if at.Leaf.Given() {
		return at.travel.gradientByChoice(d, dx, dweights, dX, dWeights)
	}
	tmp := d.Arena.Scope(device.Communication)
	defer tmp.Release()
	drows, dchosen := tmp.Alloc(dx.DType, max(1, at.candidates), dx.Last()), tmp.Alloc(dweights.DType, max(1, at.candidates), dweights.Last())
	d.CombineRows(drows, dX, at.slots)
	d.PlaceChoices(device.PlaceChoicesArgs{Placed: dWeights, Chosen: dchosen, Slots: at.slots, Back: 1})
	return at.travel.gradientBack(d, dx, dweights, drows, dchosen)
}

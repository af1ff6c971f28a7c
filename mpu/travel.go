package mpu

import (
	"math"
	"slices"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/mpu/comm"
)

// travel is one micro-batch's way between ranks that share a layer's experts. Rank e·parts+r
// of the group has part r of the experts of owner e. Sizes are known on the device first;
// the host reads them once.
type travel struct {
	group         *comm.Group
	owners, parts int
	all           bool // every token goes everywhere
	tree          bool // parts of a sum are added as a tree

	// Of this rank's tokens:
	tokens     int64
	sent, back []int64 // by owner: tokens that go there; results that come back
	sendRows   Tensor  // i32 [Σ sent]: the token; not where all go everywhere
	sendSlots  Tensor  // i32 [t,k]: where a token stands that goes to an owner, at its first choice of it
	backRows   Tensor  // i32 [Σ back]: the token of a result
	backSlots  Tensor  // i32 [t,k]: the result of each choice

	// Of other ranks' tokens, which are here:
	received, results []int64 // by rank of the group
	bytes             int64   // that went from this rank to others since Dispatched.Bytes was asked
	toResults         Tensor  // i32 [sent rows]: the row of a result, in the order in which they go back
	toRows            Tensor  // i32 [sent rows]: the result of a row
}

// plan makes the lists of which rows go where, and exchanges the counts with all ranks.
func (m *Dispatcher) plan(d *device.Device, s *device.Scope, leaves Leaves, experts Tensor) (*travel, error) {
	owners := m.at.Experts / m.at.Here
	v := &travel{group: m.group, owners: owners, parts: m.at.Parts, tree: m.at.Leaves > 0, all: m.all, tokens: experts.Shape[0],
		sendSlots: s.Alloc(device.I32, experts.Dims()...), backSlots: s.Alloc(device.I32, experts.Dims()...)}
	tmp := d.Arena.Scope(device.Communication)
	defer tmp.Release()
	offsets := tmp.Alloc(device.I32, 2, int64(owners)+1)
	order := func(rows, slots, offsets Tensor, once int32) {
		leaves.order(d, device.ExpertOrderArgs{Rows: rows, Slots: slots, Offsets: offsets, Experts: experts, Width: int64(m.at.Here), Once: once})
	}
	sendRows, backRows := tmp.Alloc(device.I32, experts.Len()), tmp.Alloc(device.I32, experts.Len())
	order(sendRows, v.sendSlots, offsets.At(0), 1)
	order(backRows, v.backSlots, offsets.At(1), 0)
	if err := v.learn(d, offsets, m); err != nil {
		return nil, err
	}
	keep := func(rows Tensor, n int64) Tensor {
		kept := s.Alloc(device.I32, max(1, n))
		d.Copy(kept, rows.Slice(0, 0, kept.Len()))
		return kept
	}
	if v.backRows = keep(backRows, sum(v.back)); !v.all {
		v.sendRows = keep(sendRows, sum(v.sent))
	}
	return v, nil
}

// learn has every rank know how much it gets. Where memory is only counted, and nobody says
// what is read, experts are chosen evenly, or this rank's as often as they can be.
func (v *travel) learn(d *device.Device, offsets Tensor, m *Dispatcher) error {
	tmp := d.Arena.Scope(device.Communication)
	defer tmp.Release()
	// Every rank's offsets [n, 2, owners + 1]: what it sends to and expects from each owner.
	n, width, me := v.group.Size(), v.owners+1, v.group.Rank()/v.parts
	every := tmp.Alloc(device.I32, int64(n), 2, int64(width))
	if err := v.group.AllGather(every, offsets).Wait(); err != nil {
		return err
	}
	host := device.ReadSlice[int32](d, every)
	if err := d.Sync(); err != nil {
		return err
	}
	// A dry run has no values: the counts are made up.
	if d.Counts() && slices.Max(host) == 0 {
		v.imagine(host, m, d.CountsMost())
	}
	// Counts come from other ranks: they must fit this rank's memory.
	if err := v.believable(host, v.sendSlots.Len()); err != nil {
		return err
	}
	// Rows from a rank to an owner: tokens (which 0) there, results (1) back.
	count := func(rank, which, owner int) int64 {
		at := host[(rank*2+which)*width:]
		if which == 0 && v.all {
			return v.tokens
		}
		return int64(at[owner+1] - at[owner])
	}
	for e := range v.owners {
		v.sent, v.back = append(v.sent, count(v.group.Rank(), 0, e)), append(v.back, count(v.group.Rank(), 1, e))
	}
	for rank := range n {
		v.received, v.results = append(v.received, count(rank, 0, me)), append(v.results, count(rank, 1, me))
	}
	return nil
}

// believable rejects offsets, as every rank of the group sends them, that no choices of so
// many can have: memory is taken, and rows are read, by what they say.
func (v *travel) believable(host []int32, choices int64) error {
	width := v.owners + 1
	for i := 0; i < len(host); i += width {
		counts := host[i:][:width]
		if counts[0] != 0 || !slices.IsSorted(counts) || int64(counts[v.owners]) > choices {
			return exitcode.Errorf(exitcode.Internal, "rank %d of group %s has at most %d expert choices, but sent the offsets %v, which must ascend from 0 to at most this number: the exchange of counts is corrupt",
				v.group.Members()[i/(2*width)], v.group.Name(), choices, counts)
		}
	}
	return nil
}

// imagine fills in what every rank would tell of its offsets where tokens choose all experts
// evenly, or, most, those of this rank first.
func (v *travel) imagine(host []int32, m *Dispatcher, most bool) {
	k, here, space := v.sendSlots.Last(), int64(m.at.Here), int64(math.MaxInt64)
	if m.Capacity != nil {
		space = here * m.Capacity(v.tokens)
	}
	fall := func(owner int) (tokens, choices int64) { return v.even(owner, k, int64(m.at.Experts)) }
	if most {
		first := v.group.Rank() / v.parts
		fall = func(owner int) (tokens, choices int64) {
			before := int64((owner-first+v.owners)%v.owners) * here // experts that are chosen before this owner's
			choices = v.tokens * max(0, min(here, k-before))
			return min(v.tokens, choices), choices
		}
	}
	width := v.owners + 1
	for at := 0; at < len(host); at += 2 * width {
		to, back := host[at:][:width], host[at+width:][:width]
		for e := range v.owners {
			tokens, choices := fall(e)
			if choices > space {
				tokens, choices = min(tokens, space), space
			}
			to[e+1], back[e+1] = to[e]+int32(tokens), back[e]+int32(choices)
		}
	}
}

// even is what an owner gets of a rank whose tokens choose k of all experts evenly: each token
// that has chosen one of its experts once, as many as chance would have it; and all their choices.
func (v *travel) even(owner int, k, experts int64) (tokens, choices int64) {
	nobody, owners := 1.0, int64(v.owners) // the share of tokens that choose none of an owner's experts
	for i := range k {
		nobody *= max(0, 1-float64(experts/owners)/float64(experts-i))
	}
	e, all := int64(owner), v.tokens*k
	return int64(math.Ceil((1 - nobody) * float64(v.tokens))), (e+1)*all/owners - e*all/owners
}

// placed is how many rows the experts here have.
func (v *travel) placed() int64 { return max(1, sum(v.results)) }

func sum(counts []int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// send brings tokens with their choices and weights to the owners: what has arrived, by rank
// and there in the order of tokens.
func (v *travel) send(d *device.Device, s *device.Scope, during During, tensors ...Tensor) (arrived []Tensor, err error) {
	var waits []comm.Work
	for _, t := range tensors {
		out := s.Alloc(t.DType, max(1, sum(v.received)), t.Last())
		if t.DType == device.I32 && sum(v.received) == 0 {
			d.Fill(out, -1) // an unused row chooses no expert
		}
		arrived = append(arrived, out)
		if v.all {
			v.bytes += t.Bytes() * int64(v.group.Size()-1)
			waits = append(waits, v.group.AllGather(out, t))
			continue
		}
		packed := s.Alloc(t.DType, max(1, sum(v.sent)), t.Last())
		d.GatherRows(packed, t, v.sendRows)
		waits = append(waits, v.group.AllToAllV(parts(out, v.received), v.leaving(v.toRanks(packed, v.sent))))
	}
	if err := during.run(); err != nil {
		return nil, err
	}
	for _, w := range waits {
		if err := w.Wait(); err != nil {
			return nil, err
		}
	}
	return arrived, nil
}

// leaving counts what of the parts for every rank leaves this one.
func (v *travel) leaving(parts []Tensor) []Tensor {
	for rank, part := range parts {
		if rank != v.group.Rank() {
			v.bytes += part.Bytes()
		}
	}
	return parts
}

// toRanks views, for every rank of the group, the rows of its owner.
func (v *travel) toRanks(t Tensor, counts []int64) (all []Tensor) {
	for _, part := range parts(t, counts) {
		for range v.parts {
			all = append(all, part)
		}
	}
	return all
}

// fromRanks views, for every rank of the group, its own rows of t [parts, Σ counts, c],
// where those of equal part lie together.
func (v *travel) fromRanks(t Tensor, counts []int64) []Tensor {
	all := make([]Tensor, v.owners*v.parts)
	for r := range v.parts {
		for e, part := range parts(t.At(int64(r)), counts) {
			all[e*v.parts+r] = part
		}
	}
	return all
}

// parts cuts rows into stretches of the given sizes.
func parts(t Tensor, counts []int64) (all []Tensor) {
	at := int64(0)
	for _, n := range counts {
		all = append(all, t.Slice(0, at, n))
		at += n
	}
	return all
}

// arrange finds the order in which results go back: by rank, token and choice.
func (v *travel) arrange(d *device.Device, s *device.Scope, at ExpertShare, leaves Leaves, experts Tensor, out *Dispatched) {
	tmp := d.Arena.Scope(device.Communication)
	defer tmp.Release()
	rows, order, end := tmp.Alloc(device.I32, experts.Len()), tmp.Alloc(device.I32, experts.Dims()...), tmp.Alloc(device.I32, 2)
	leaves.order(d, device.ExpertOrderArgs{Rows: rows, Slots: order, Offsets: end, Experts: experts, Start: int64(at.First), Width: int64(at.Here)})
	v.toResults, v.toRows = s.Alloc(device.I32, v.placed()), s.Alloc(device.I32, v.placed())
	d.PlaceChoices(device.PlaceChoicesArgs{Placed: v.toResults, Chosen: out.slots, Slots: order})
	d.PlaceChoices(device.PlaceChoicesArgs{Placed: v.toRows, Chosen: order, Slots: out.slots})
}

// bringBack sets y from the results: the parts of an expert's are added up, then a token's in the
// order of its choices.
func (v *travel) bringBack(d *device.Device, y, out Tensor) error {
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	home, err := v.home(d, s, out, y.DType)
	if err != nil {
		return err
	}
	d.CombineRows(y, home, v.backSlots)
	return nil
}

// home brings each row back to its token's rank, by choice, and adds up the parts of an
// expert: [choices, c].
func (v *travel) home(d *device.Device, s *device.Scope, out Tensor, dtype device.DType) (Tensor, error) {
	going := s.Like(out)
	d.GatherRows(going, out, v.toResults)
	home := s.Alloc(out.DType, int64(v.parts), max(1, sum(v.back)), out.Last())
	if err := v.group.AllToAllV(v.fromRanks(home, v.back), v.leaving(parts(going, v.results))).Wait(); err != nil {
		return home, err
	}
	all := v.addParts(d, home)
	if all.DType == dtype {
		return all, nil
	}
	rounded := s.Alloc(dtype, all.Dims()...)
	d.Copy(rounded, all)
	return rounded, nil
}

// addParts sums t [parts, n, c] over the parts, in the order of the ranks or as a tree.
func (v *travel) addParts(d *device.Device, t Tensor) Tensor {
	if v.tree {
		AddTree(d, t)
		return t.At(0)
	}
	first := t.At(0)
	for r := int64(1); r < t.Shape[0]; r++ {
		d.Add(first, first, t.At(r))
	}
	return first
}

// gradientByChoice is gradientBack where a token's gradients are added up at home, in the order of
// its choices: another order for other owners of the experts would be another sum.
func (v *travel) gradientByChoice(d *device.Device, dx, dweights, drows, dplaced Tensor) error {
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	rows, err := v.home(d, s, drows, dx.DType)
	if err != nil {
		return err
	}
	weights, err := v.home(d, s, dplaced.Reshape(dplaced.Len(), 1), dweights.DType)
	if err != nil {
		return err
	}
	d.CombineRows(dx, rows, v.backSlots)
	d.PlaceChoices(device.PlaceChoicesArgs{Placed: weights.Reshape(weights.Len()), Chosen: dweights, Slots: v.backSlots, Back: 1})
	return nil
}

// sendGradient brings each result's gradient to its expert's rank.
func (v *travel) sendGradient(d *device.Device, s *device.Scope, dy Tensor, during During) (Tensor, error) {
	tmp := d.Arena.Scope(device.Communication)
	defer tmp.Release()
	going, arrived := tmp.Alloc(dy.DType, max(1, sum(v.back)), dy.Last()), tmp.Alloc(dy.DType, v.placed(), dy.Last())
	d.GatherRows(going, dy, v.backRows)
	travels := v.group.AllToAllV(parts(arrived, v.results), v.leaving(v.toRanks(going, v.back)))
	if err := during.run(); err != nil {
		return Tensor{}, err
	}
	if err := travels.Wait(); err != nil {
		return Tensor{}, err
	}
	dout := s.Like(arrived)
	d.GatherRows(dout, arrived, v.toRows)
	return dout, nil
}

// gradientBack sets dx and dweights of the tokens here from what the owners have of them.
func (v *travel) gradientBack(d *device.Device, dx, dweights, drows, dchosen Tensor) error {
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	var home [2]Tensor
	for i, t := range []Tensor{drows, dchosen} {
		home[i] = s.Alloc(t.DType, int64(v.parts), max(1, sum(v.sent)), t.Last())
		if err := v.group.AllToAllV(v.fromRanks(home[i], v.sent), v.leaving(parts(t, v.received))).Wait(); err != nil {
			return err
		}
	}
	slots := v.sendSlots
	if v.all {
		slots = v.everywhere(d, s)
	}
	d.CombineRows(dx, v.addParts(d, home[0]), slots)
	d.CombineRows(dweights, v.addParts(d, home[1]), slots)
	return nil
}

// everywhere is sendSlots where every token goes to every owner: [t, owners].
func (v *travel) everywhere(d *device.Device, s *device.Scope) Tensor {
	slots := make([]int32, v.tokens*int64(v.owners))
	for i := range v.tokens {
		for e := range v.owners {
			slots[i*int64(v.owners)+int64(e)] = int32(int64(e)*v.tokens + i)
		}
	}
	t := s.Alloc(device.I32, v.tokens, int64(v.owners))
	device.WriteSlice(d, t, slots)
	return t
}

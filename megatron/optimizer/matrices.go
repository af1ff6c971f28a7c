package optimizer

import (
	"slices"

	"monotron/csrc/device"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// matrix is a tensor that Muon updates as one: a weight, or an expert's. Every rank that updates
// elements of it has all of its momentum for a moment: the parts of the ranks that share a state
// first, then those of the ranks among which the weight is cut. All of them make the same
// products, so that an update does not depend on the layout.
type matrix struct {
	rows, columns int64
	family        *family
	locals        []local
	n             int64 // elements of the locals together
	qkv           [3]int64
	gated         bool          // Param.Gated, and the halves are updated apart
	head          int64         // rows of each head, where they are matrices of their own; 0: they are not
	cut           bool          // other ranks of family.Cut have parts too
	moment2       device.Tensor // f32 [max(rows, columns)]: of AdaptiveMuon by lines, where this rank updates elements
	name          string        // the tensor's
	pieces        [][]mpu.Piece // of each rank of family.Cut: what its n elements are of the tensor; where it is not cut, of this one
}

// local is a rank's part of a matrix: elements [from, from+n) of a parameter's local buffer.
type local struct {
	param   *mpu.Param
	from, n int64
	at      int64 // among the elements of the matrix's locals
}

// allMatrices lists them in the order of the model, with the pieces of this rank.
func (o *Optimizer) allMatrices() (all []*matrix) {
	by := map[string]*matrix{}
	// A matrix may consist of several pieces of one parameter, or of several parameters.
	for _, p := range o.params {
		if !o.orthogonal(p) {
			continue
		}
		for _, t := range p.Tensors() {
			m := by[t.Name]
			if m == nil {
				m = &matrix{name: t.Name, rows: t.Global[0], columns: t.Global[1], family: o.bucketOf[p].family, pieces: make([][]mpu.Piece, 1)}
				if !o.config.Muon.FullQKV {
					m.qkv = p.QKV
				}
				m.gated = p.Gated && o.config.Muon.SplitGate
				if o.config.Muon.PerHead {
					m.head = p.Head
				}
				by[t.Name] = m
				all = append(all, m)
			}
			m.add(p, t.Pieces)
		}
	}
	// Pieces that do not cover the matrix: the others are on tensor-parallel ranks. Blockwise, each rank's part
	// is a matrix by itself.
	for _, m := range all {
		covered := int64(0)
		for _, p := range m.pieces[0] {
			covered += p.Len()
		}
		m.cut = covered < m.rows*m.columns
		if m.cut && o.config.Muon.TPMode == MuonBlockwise {
			m.blockwise()
		}
		o.allocateMoment2(m)
	}
	return all
}

// add takes what a parameter has of the matrix.
func (m *matrix) add(p *mpu.Param, pieces []mpu.Piece) {
	l := local{param: p, n: p.Len(), at: m.n}
	if p.Each != nil { // one of several tensors of the parameter
		to := int64(0)
		l.from = p.Len()
		for _, piece := range pieces {
			l.from, to = min(l.from, piece.Local), max(to, piece.Local+piece.Len())
		}
		l.n = to - l.from
	}
	for _, piece := range pieces {
		piece.Local += m.n - l.from
		m.pieces[0] = append(m.pieces[0], piece)
	}
	m.locals = append(m.locals, l)
	m.n += l.n
}

// blockwise makes this rank's part of a matrix a matrix of its own.
func (m *matrix) blockwise() {
	m.columns = m.pieces[0][0].Size[1]
	m.rows, m.cut = m.n/m.columns, false
	m.pieces[0] = []mpu.Piece{{From: []int64{0, 0}, Size: []int64{m.rows, m.columns}}}
}

// meet learns, before the first update, which pieces the other ranks have that share matrices
// with this one.
func (o *Optimizer) meet() error {
	for _, f := range o.families {
		var own []*matrix
		for _, m := range o.matrices {
			if m.family == f && m.cut && len(m.pieces) == 1 {
				own = append(own, m)
			}
		}
		if len(own) > 0 {
			if err := o.exchangePieces(f.Cut, own); err != nil {
				return err
			}
		}
	}
	return nil
}

// pieceWords are the numbers that say what a piece is: its corner, its size, its start.
const pieceWords = 5

// exchangePieces gives each matrix the pieces of all ranks of g, which have equally many.
func (o *Optimizer) exchangePieces(g *comm.Group, ms []*matrix) error {
	d := o.device
	// words: five numbers for each piece, as 2-d boxes with their offset in the local tensor.
	var words []int64
	for _, m := range ms {
		for _, p := range m.pieces[0] {
			words = append(words, p.From[0], p.From[1], p.Size[0], p.Size[1], p.Local)
		}
	}
	// all: i64 [ranks, words]
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	n := int64(len(words))
	mine, all := s.Alloc(device.I64, n), s.Alloc(device.I64, int64(g.Size()), n)
	device.WriteSlice(d, mine, words)
	if err := g.AllGather(all, mine).Wait(); err != nil {
		return err
	}
	got := device.ReadSlice[int64](d, all)
	// Back into pieces; every rank has equally many of each matrix, so positions in a row are the same.
	at := 0
	for _, m := range ms {
		count, pieces := len(m.pieces[0]), make([][]mpu.Piece, g.Size())
		for r := range pieces {
			if pieces[r] = m.pieces[0]; d.Counts() { // nothing has travelled
				continue
			}
			pieces[r] = nil
			for i := range count {
				w := got[r*len(words)+at+i*pieceWords:]
				pieces[r] = append(pieces[r], mpu.Piece{From: w[0:2:2], Size: w[2:4:4], Local: w[4]})
			}
		}
		m.pieces = pieces
		at += count * pieceWords
	}
	return d.Err()
}

// shardOf is what rank r of those that share the state has of a local: elements of the
// parameter's local buffer.
func (o *Optimizer) shardOf(l local, r int) stretch {
	b := o.bucketOf[l.param]
	start := b.from + b.at[slices.Index(b.params, l.param)]
	theirs := stretch{b.from + b.own.n*int64(r), b.own.n}.overlap(stretch{start + l.from, l.n})
	theirs.from -= start
	return theirs
}

// takes reports whether rank r of those that share the state updates elements of the matrix.
func (o *Optimizer) takes(m *matrix, r int) bool {
	return slices.ContainsFunc(m.locals, func(l local) bool { return o.shardOf(l, r).n > 0 })
}

// updateMatrix makes a step of a matrix of which this rank updates elements.
func (o *Optimizer) updateMatrix(m *matrix) error {
	if !o.takes(m, m.family.shard()) {
		return nil
	}
	s := o.device.Arena.Scope(device.Workspace)
	defer s.Release()
	u := s.Alloc(device.F32, m.n)
	o.addMomentum(m, u)
	if err := o.gatherShards(m, u); err != nil {
		return err
	}
	full, err := o.assemble(s, m, u)
	if err != nil {
		return err
	}
	by := o.orthogonalize(m, full)
	if m.moment2.Given() {
		o.scaleLines(m, full)
	}
	if full.Data != u.Data {
		o.eachPiece(m, u, full, rank(m.family.Cut), func(local, global device.Tensor) { o.device.Copy(local, global) })
	}
	for _, l := range m.locals {
		o.follow(l, u, by)
	}
	return nil
}

// addMomentum averages this rank's gradients of the matrix, and puts what is made orthogonal
// to their positions in u [n].
func (o *Optimizer) addMomentum(m *matrix, u device.Tensor) {
	c := &o.config.Muon
	for _, l := range m.locals {
		mine := o.shardOf(l, m.family.shard())
		if mine.n == 0 {
			continue
		}
		s := o.shares[l.param]
		a := device.MomentumArgs{M: s.m.Slice(0, mine.from-s.from, mine.n), Grad: s.grad.Slice(0, mine.from-s.from, mine.n), Hyper: o.clips[o.clipOf(l.param)].hyper, Mu: float32(c.Momentum)}
		out := u.Slice(0, l.at+mine.from-l.from, mine.n)
		if c.Nesterov {
			a.Out = out
		}
		o.device.Momentum(a)
		if !c.Nesterov {
			o.device.Copy(out, a.M)
		}
	}
}

// gatherShards completes u [n] with what the other ranks have that share the state and update
// elements of the matrix.
func (o *Optimizer) gatherShards(m *matrix, u device.Tensor) error {
	f := m.family
	if !f.sharded() {
		return nil
	}
	// part: the stretch of u that rank r's shard has of a local tensor, if any.
	part := func(l local, r int) (device.Tensor, bool) {
		theirs := o.shardOf(l, r)
		return u.Slice(0, l.at+max(0, theirs.from-l.from), theirs.n), theirs.n > 0
	}
	// Ranks whose shards have none of the matrix take no part: both sides of a pair know that from the layout.
	var transfers []comm.Transfer
	for r := range f.shards() {
		if r == f.shard() || !o.takes(m, r) {
			continue
		}
		for _, l := range m.locals {
			if mine, ok := part(l, f.shard()); ok {
				transfers = append(transfers, comm.Transfer{Peer: r, Send: true, T: mine})
			}
			if theirs, ok := part(l, r); ok {
				transfers = append(transfers, comm.Transfer{Peer: r, T: theirs})
			}
		}
	}
	if len(transfers) == 0 {
		return nil
	}
	return f.sharers().Exchange(transfers).Wait()
}

// assemble gives the matrix [rows, columns] of u [n] and what the ranks have among which it is
// cut: u itself where that is all of it in order.
func (o *Optimizer) assemble(s *device.Scope, m *matrix, u device.Tensor) (device.Tensor, error) {
	if m.inOrder() {
		return u.Reshape(m.rows, m.columns), nil
	}
	full, all := s.Alloc(device.F32, m.rows, m.columns), u.Reshape(1, m.n)
	if m.cut {
		all = s.Alloc(device.F32, int64(m.family.Cut.Size()), m.n)
		if err := m.family.Cut.AllGather(all, u).Wait(); err != nil {
			return full, err
		}
	}
	for r := range m.pieces {
		o.eachPiece(m, all.At(int64(r)), full, r, func(local, global device.Tensor) { o.device.Copy(global, local) })
	}
	return full, nil
}

// inOrder reports whether the elements of the locals are those of the matrix, in its order.
func (m *matrix) inOrder() bool {
	for _, p := range m.pieces[0] {
		if p.From[1] != 0 || p.Size[1] != m.columns || p.Local != p.From[0]*m.columns {
			return false
		}
	}
	return !m.cut && m.n == m.rows*m.columns
}

// eachPiece shows do the pieces of rank r of those among which the matrix is cut, each in its
// elements u [n] and in the matrix.
func (o *Optimizer) eachPiece(m *matrix, u, full device.Tensor, r int, do func(local, global device.Tensor)) {
	if len(m.pieces) == 1 {
		r = 0
	}
	for _, p := range m.pieces[r] {
		do(u.Slice(0, p.Local, p.Len()).Reshape(p.Size...), full.Slice(0, p.From[0], p.Size[0]).Slice(1, p.From[1], p.Size[1]))
	}
}

// parts are the rows of each part of a group of rows: Q, K and V, or the halves of a gated MLP's; zeros: there are none.
func (m *matrix) parts() [3]int64 {
	if m.gated {
		return [3]int64{m.rows / 2, m.rows / 2, 0}
	}
	return m.qkv
}

// orthogonalize makes the direction of a step of a matrix of momentum, in place: as it is, or that of each of
// its parts, or of each head. The step is `by` times as long: Muon's parts have their own lengths,
// AdaptiveMuon's the weight's, since second moments come between.
func (o *Optimizer) orthogonalize(m *matrix, full device.Tensor) (by float32) {
	d, c := o.device, &o.config.Muon
	parts := m.parts()
	rows := parts[0] + parts[1] + parts[2]
	switch {
	case m.head > 0:
		return o.orthogonalizeHeads(m, full)
	case rows == 0:
		o.newtonSchulz(full)
		return float32(c.scale(m.rows, m.columns))
	}
	groups, at := full.Reshape(m.rows/rows, rows, m.columns), int64(0)
	for _, n := range parts {
		if n == 0 {
			continue
		}
		s := d.Arena.Scope(device.Workspace)
		one, theirs := s.Alloc(device.F32, groups.Shape[0], n, m.columns), groups.Slice(1, at, n)
		d.Copy(one, theirs)
		o.newtonSchulz(one.Reshape(groups.Shape[0]*n, m.columns))
		if o.config.Kind == Muon {
			d.Scale(device.ScaleArgs{Out: one, X: one, By: float32(c.scale(groups.Shape[0]*n, m.columns))})
		}
		d.Copy(theirs, one)
		s.Release()
		at += n
	}
	if o.config.Kind == AdaptiveMuon {
		return float32(c.scale(m.rows, m.columns))
	}
	return 1
}

// orthogonalizeHeads is orthogonalize of the rows of each head.
func (o *Optimizer) orthogonalizeHeads(m *matrix, full device.Tensor) (by float32) {
	for at := int64(0); at < m.rows; at += m.head {
		o.newtonSchulz(full.Slice(0, at, m.head))
	}
	if o.config.Kind == AdaptiveMuon {
		return float32(o.config.Muon.scale(m.rows, m.columns))
	}
	return float32(o.config.Muon.scale(m.head, m.columns))
}

// follow moves this rank's elements of a local along u [n].
func (o *Optimizer) follow(l local, u device.Tensor, by float32) {
	mine := o.shardOf(l, o.bucketOf[l.param].family.shard())
	if mine.n == 0 {
		return
	}
	s := o.shares[l.param]
	direction := u.Slice(0, l.at+mine.from-l.from, mine.n)
	if s.v.Given() {
		o.scaleElements(s.v.Slice(0, mine.from-s.from, mine.n), direction, o.clips[o.clipOf(l.param)].hyper)
	}
	a := device.FollowArgs{Param: s.main.Slice(0, mine.from-s.from, mine.n), Direction: direction,
		Hyper: o.clips[o.clipOf(l.param)].hyper, By: by, Decay: o.decay(l.param)}
	if s.hasMaster() {
		a.Model = s.value.Slice(0, mine.from-s.from, mine.n)
	}
	o.device.Follow(a)
}

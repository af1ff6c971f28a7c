package optimizer

import (
	"cmp"
	"sync/atomic"

	"monotron/csrc/device"
)

// away is the state of this rank's shards that lies outside of the device's memory: strips of
// equal length, one a kind, in the order of the buckets and their parts (parts.go). An update takes them through the
// device's memory piece by piece; values also come and go by bucket (carry.go).
type away struct {
	values, mains, ms, vs, grads *strip // nil: here, or not kept
	frozen                       *strip // values of frozen parameters; of another length

	n, piece int64      // elements of each strip, and of those that are here at a time
	visited  []*strip   // all but frozen
	segments []*segment // whose state it is, in the order of the model
	slots    []*slot
	staging  [][]byte // of fetches that are over
}

// Of each strip so many elements are here at a time in each slot: one is read, one is
// updated, one is written.
const (
	pieceElements = 1 << 20
	slotCount     = 3
)

// pageElements of any dtype begin and end at pages.
const pageElements = device.PageSize / 2

// frozenStore is the purpose of the store of values that are not trained.
const frozenStore = "frozen"

// slot is memory for a piece of every strip.
type slot struct {
	from, n int64           // of the strips
	here    []device.Tensor // [piece] of each strip
	host    [][]byte        // the same as the host sees it: here itself, or what is copied there
	err     error           // of reading
}

// allocateOffloaded makes the strips and what they are worked on in.
func (o *Optimizer) allocateOffloaded(dtype, wide device.DType, e Offloaded) {
	o.divide(e)
	if e.Store == nil {
		return
	}
	// a.n: elements of this rank that are trained and offloaded; frozen: those that are not trained.
	a, frozen := &away{}, int64(0)
	for _, b := range o.buckets {
		for _, p := range b.parts {
			if p.away {
				a.n = p.start + roundUp(p.n, pageElements)
			}
		}
		if b.family.sharding.Offloaded.Parameters {
			frozen += roundUp(b.own.n-b.trained(b.own.n), pageElements)
		}
	}
	// One strip per kind of state, and in a.visited those that an update reads or writes.
	start := func(wanted bool, name string, dtype device.DType, n int64) *strip {
		if !wanted || n == 0 {
			return nil
		}
		s := &strip{page: pageElements, t: o.device.Offloaded(dtype, n, func(bytes int64) (device.Store, error) { return e.Store(name, bytes) })}
		if name != frozenStore {
			a.visited = append(a.visited, s)
		}
		return s
	}
	main, m, v := o.states(dtype, wide)
	a.values, a.frozen = start(e.Parameters, "values", dtype, a.n), start(frozen > 0, frozenStore, dtype, frozen)
	a.mains, a.ms, a.vs = start(main, "main", wide, a.n), start(m, "exp_avg", wide, a.n), start(v, "exp_avg_sq", wide, a.n)
	a.grads = start(e.Gradients, "grad", wide, a.n)
	if len(a.visited) == 0 && a.frozen == nil {
		o.divide(Offloaded{}) // nothing is kept except values and gradients
		return
	}
	// Memory in which pieces of the strips are updated, several so that reading, updating and writing overlap.
	a.piece = min(cmp.Or(e.Piece, pieceElements), a.n)
	for range slotCount {
		a.slots = append(a.slots, o.slot(a))
	}
	o.away = a
}

func (o *Optimizer) slot(a *away) *slot {
	s := &slot{}
	for _, strip := range a.visited {
		t, _ := o.device.Arena.Paged(device.Optimizer, strip.t.DType, a.piece, 0) // for as long as the optimizer
		s.here, s.host = append(s.here, t), append(s.host, o.hostOf(t))
	}
	return s
}

// hostOf is t's memory where the host has it, else memory to copy from and to.
func (o *Optimizer) hostOf(t device.Tensor) []byte {
	if o.device.OnHost() {
		return o.device.Bytes(t)
	}
	return device.Pages(t.Bytes())
}

// flow says which strips a visit reads and writes.
type flow struct{ read, written func(*strip) bool }

// visit brings the strips here piece by piece for work, which gets what each piece has of a
// segment. While it works the next piece is read, and the last one written.
func (o *Optimizer) visit(f flow, work func(*segment)) error {
	free, full, dirty := make(chan *slot, slotCount), make(chan *slot, slotCount), make(chan *slot, slotCount)
	for _, s := range o.away.slots {
		free <- s
	}
	var failed atomic.Bool
	go o.readPieces(f, &failed, free, full)
	written := make(chan error, 1)
	go o.writePieces(f, &failed, dirty, free, written)
	var err error
	for s := range full {
		if err = cmp.Or(err, s.err, o.device.Err()); err != nil || failed.Load() {
			failed.Store(true)
			free <- s
			continue
		}
		o.work(s, f, work)
		dirty <- s
	}
	close(dirty)
	return cmp.Or(err, <-written)
}

// readPieces fills slots until all pieces are read, or something has failed.
func (o *Optimizer) readPieces(f flow, failed *atomic.Bool, free <-chan *slot, full chan<- *slot) {
	defer close(full)
	a := o.away
	for from := int64(0); from < a.n && !failed.Load(); from += a.piece * a.alike(from, o.device) {
		s := <-free
		s.from, s.n, s.err = from, min(a.piece, a.n-from), nil
		for i, strip := range a.visited {
			if f.read(strip) && s.err == nil {
				s.err = o.device.Fetch(s.bytes(i), strip.t.Slice(0, s.from, s.n))
			}
		}
		full <- s
	}
}

// alike is for how many pieces the one that begins there stands: where nobody sees what is done
// with them, for all that follow in its segment.
func (a *away) alike(from int64, d *device.Device) int64 {
	if d.Unseen() {
		for _, s := range a.segments {
			if s.at <= from && from+a.piece <= s.at+s.n {
				return (s.at + s.n - from) / a.piece
			}
		}
	}
	return 1
}

// writePieces empties slots; the first error is what it ends with.
func (o *Optimizer) writePieces(f flow, failed *atomic.Bool, dirty <-chan *slot, free chan<- *slot, written chan<- error) {
	var err error
	for s := range dirty {
		for i, strip := range o.away.visited {
			if f.written(strip) && err == nil {
				err = o.device.Put(strip.t.Slice(0, s.from, s.n), s.bytes(i))
			}
		}
		if err != nil {
			failed.Store(true)
		}
		free <- s
	}
	written <- err
}

// bytes are the piece of strip i.
func (s *slot) bytes(i int) []byte { return s.host[i][:s.n*s.here[i].DType.Size()] }

// work does the rank's part of a visit: only it may ask the device for something.
func (o *Optimizer) work(s *slot, f flow, work func(*segment)) {
	d, a := o.device, o.away
	copies, piece := !d.OnHost(), stretch{s.from, s.n}
	for i, strip := range a.visited {
		if copies && f.read(strip) {
			d.Write(s.here[i].Slice(0, 0, s.n), s.bytes(i))
		}
	}
	for _, seg := range a.segments {
		if p := piece.overlap(stretch{seg.at, seg.n}); p.n > 0 {
			work(a.pieceOf(seg, s, p))
		}
	}
	for i, strip := range a.visited {
		if copies && f.written(strip) {
			d.Read(s.bytes(i), s.here[i].Slice(0, 0, s.n))
		}
	}
}

// pieceOf is elements p of the strips of a segment, in the slot where they are offloaded.
func (a *away) pieceOf(seg *segment, s *slot, p stretch) *segment {
	cut := func(t device.Tensor, of *strip) device.Tensor {
		switch {
		case !t.Given():
			return t
		case !t.Offloaded():
			return t.Slice(0, p.from-seg.at, p.n)
		}
		for i, strip := range a.visited {
			if strip == of {
				return s.here[i].Slice(0, p.from-s.from, p.n)
			}
		}
		return device.Tensor{} // not there: every strip of a segment is visited
	}
	mains := a.mains
	if mains == nil { // f32: main parameters are the values
		mains = a.values
	}
	return &segment{param: seg.param, from: seg.from + p.from - seg.at, n: p.n, at: p.from, grad: cut(seg.grad, a.grads),
		value: cut(seg.value, a.values), main: cut(seg.main, mains), m: cut(seg.m, a.ms), v: cut(seg.v, a.vs)}
}

// updateOffloaded updates what is offloaded; a skipped step changes nothing.
func (o *Optimizer) updateOffloaded() error {
	a := o.away
	if a == nil {
		return o.device.Err()
	}
	if device.ReadSlice[float32](o.device, o.clips[0].hyper)[device.HyperSkip] != 0 {
		return o.device.Err()
	}
	return o.visit(flow{
		read:    func(s *strip) bool { return s != a.values || a.mains == nil },
		written: func(s *strip) bool { return s != a.grads },
	}, func(s *segment) { o.update(s.alone(o.shares[s.param])) })
}

// statsOffloaded adds the statistics of offloaded gradients.
func (o *Optimizer) statsOffloaded() error {
	a := o.away
	if a == nil || a.grads == nil {
		return nil
	}
	return o.visit(flow{read: func(s *strip) bool { return s == a.grads }, written: func(*strip) bool { return false }}, func(s *segment) {
		if o.counts(s.param) {
			o.device.GradStats(o.clips[o.clipOf(s.param)].stats, s.grad, device.Tensor{})
		}
	})
}

// adoptOffloaded is AdoptValues of offloaded main parameters.
func (o *Optimizer) adoptOffloaded(named func(string) bool) {
	a := o.away
	if a == nil || a.mains == nil {
		return
	}
	o.device.Fail(o.visit(flow{
		read:    func(s *strip) bool { return s == a.values || s == a.mains },
		written: func(s *strip) bool { return s == a.mains },
	}, func(s *segment) {
		if named(s.param.Name) {
			o.device.Copy(s.main, s.value)
		}
	}))
}

// statsOf adds t's statistics, wherever it lies.
func (o *Optimizer) statsOf(t device.Tensor) {
	if !t.Offloaded() {
		o.device.GradStats(o.stats, t, device.Tensor{})
		return
	}
	full := o.device.Arena.Alloc(device.Workspace, t.DType, t.Dims()...) // summed in the order of one that is here
	o.device.Move(full, t)
	o.device.GradStats(o.stats, full, device.Tensor{})
	o.device.Arena.Free(full)
}

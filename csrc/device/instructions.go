package device

import "time"

// Instructions are a processor's fastest multiply-adds for products of a dtype, in
// registers with nothing to wait for: no product passes them.
type Instructions struct {
	Name    string
	backend instructed
	dtype   DType
	rounds  int64 // of a piece
	pieces  int64 // of a measurement of all threads
}

// instructed is a backend whose processor can be asked for its multiply-adds.
type instructed interface {
	// instruct does `pieces` times `rounds` of those of dtype, on all threads where there
	// are pieces enough; operations is 0 where this dtype has none.
	instruct(dtype DType, rounds, pieces int64) (name string, operations float64)
	threads() int
}

// A measurement of all threads hands out so many pieces a thread, of about this time each.
const (
	instructionPieces = 8
	instructionPiece  = time.Millisecond
)

// Instructions for products of dtype; where the processor has none of its own for it, those
// of f32, by which its products are then made. nil: the device cannot be asked.
func (d *Device) Instructions(dtype DType) *Instructions {
	b, ok := d.backend.(instructed)
	if !ok {
		return nil
	}
	i := &Instructions{backend: b, dtype: dtype, rounds: 1, pieces: instructionPieces * int64(b.threads())}
	name, done := b.instruct(dtype, 1, 1)
	if done == 0 {
		i.dtype = F32
		if name, done = b.instruct(F32, 1, 1); done == 0 {
			return nil
		}
	}
	i.Name = name
	for took := time.Duration(0); took < instructionPiece; i.rounds *= 2 {
		began := time.Now()
		b.instruct(i.dtype, i.rounds, 1)
		took = time.Since(began)
	}
	return i
}

// Alone measures one thread while the others rest, in operations a second.
func (i *Instructions) Alone() float64 { return i.measure(1) }

// Together measures all threads of the pool.
func (i *Instructions) Together() float64 { return i.measure(i.pieces) }

func (i *Instructions) measure(pieces int64) float64 {
	began := time.Now()
	_, done := i.backend.instruct(i.dtype, i.rounds, pieces)
	return done / max(time.Since(began), 1).Seconds()
}

package schedule

import "fmt"

// Worker computes a stage's chunks. T is what flows between stages; the first
// virtual stage is given T's zero as input and the last one as gradient, and what
// the last returns forward and the first backward goes nowhere.
type Worker[T any] interface {
	Forward(micro, chunk int, in T) (out T, err error)
	Backward(micro, chunk int, dout T) (din T, err error)
}

// Link moves values between this stage and others.
type Link[T any] interface {
	// Exchange begins all transfers as one: none waits for another. Between two
	// stages they match in order. values has one entry a transfer, filled at the
	// sends; wait ends all of them and returns the like, filled at the receives.
	// What was sent belongs to the link until then.
	Exchange(transfers []Transfer, values []T) (wait func() ([]T, error), err error)
}

// Run carries out acts in order and stops at the first error. Exchanges that are
// still under way then are left to the caller, who ends the link. A list without
// exchanges needs no link.
func Run[T any](acts []Action, w Worker[T], l Link[T]) error {
	r := &runner[T]{worker: w, link: l, in: map[valueKey]T{}, out: map[valueKey]T{}}
	for _, a := range acts {
		if err := r.do(a); err != nil {
			return err
		}
	}
	for grad := range r.pending {
		if err := r.finish(grad); err != nil {
			return err
		}
	}
	return nil
}

// valueKey names a value at a boundary of a chunk.
type valueKey struct {
	grad         bool
	chunk, micro int
}

type runner[T any] struct {
	worker  Worker[T]
	link    Link[T]
	in, out map[valueKey]T // received and not used; made and not sent
	pending [2]*pending[T]
}

// pending is an overlapped exchange under way, of activations [0] or gradients [1].
type pending[T any] struct {
	transfers []Transfer
	wait      func() ([]T, error)
}

func (r *runner[T]) do(a Action) error {
	switch a.Kind {
	case Forward:
		at := valueKey{false, a.Chunk, a.Micro}
		in, err := r.take(at)
		if err == nil {
			r.out[at], err = r.worker.Forward(a.Micro, a.Chunk, in)
		}
		return named(err, "forward", a)
	case Backward:
		at := valueKey{true, a.Chunk, a.Micro}
		delete(r.out, valueKey{false, a.Chunk, a.Micro}) // the last stage's output is not sent
		dout, err := r.take(at)
		if err == nil {
			r.out[at], err = r.worker.Backward(a.Micro, a.Chunk, dout)
		}
		return named(err, "backward", a)
	}
	return r.exchange(a)
}

func named(err error, what string, a Action) error {
	if err == nil {
		return nil
	}
	if a.Chunk > 0 {
		what = fmt.Sprintf("%s of chunk %d", what, a.Chunk)
	}
	return fmt.Errorf("%s of micro-batch %d: %w", what, a.Micro, err)
}

// take returns a received value, waiting for the exchange that brings it; T's
// zero where none does.
func (r *runner[T]) take(at valueKey) (v T, err error) {
	if p := r.pending[side(at.grad)]; p != nil && brings(p.transfers, at) {
		err = r.finish(side(at.grad))
	}
	v = r.in[at]
	delete(r.in, at)
	return v, err
}

func side(grad bool) int {
	if grad {
		return 1
	}
	return 0
}

// brings reports whether an exchange receives the value at a boundary.
func brings(transfers []Transfer, at valueKey) bool {
	for _, t := range transfers {
		if !t.Send && (valueKey{t.Grad, t.Chunk, t.Micro}) == at {
			return true
		}
	}
	return false
}

func (r *runner[T]) exchange(a Action) error {
	for _, t := range a.Transfers {
		if err := r.finish(side(t.Grad)); err != nil {
			return err
		}
	}
	values := make([]T, len(a.Transfers))
	for i, t := range a.Transfers {
		if at := (valueKey{t.Grad, t.Chunk, t.Micro}); t.Send {
			values[i] = r.out[at]
			delete(r.out, at)
		}
	}
	wait, err := r.link.Exchange(a.Transfers, values)
	if err != nil {
		return fmt.Errorf("%v: %w", a, err)
	}
	grad := side(a.Transfers[0].Grad)
	r.pending[grad] = &pending[T]{a.Transfers, wait}
	if a.Overlap {
		return nil
	}
	return r.finish(grad)
}

// finish ends an overlapped exchange where one is under way.
func (r *runner[T]) finish(grad int) error {
	p := r.pending[grad]
	if p == nil {
		return nil
	}
	r.pending[grad] = nil
	values, err := p.wait()
	if err != nil {
		return fmt.Errorf("%v: %w", Action{Kind: Exchange, Transfers: p.transfers}, err)
	}
	for i, t := range p.transfers {
		if !t.Send {
			r.in[valueKey{t.Grad, t.Chunk, t.Micro}] = values[i]
		}
	}
	return nil
}

// Package commtest is the one table of collectives' results, for the tests of every
// engine: values by formula, for any group, dtype and size.
package commtest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unsafe"

	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// Reduced are the dtypes that every engine combines.
var Reduced = []device.DType{device.F32, device.F64, device.BF16, device.F16, device.I32, device.I64}

// Heap makes a tensor in Go's memory, which the race detector watches.
func Heap(dtype device.DType, values []float64) device.Tensor {
	b := device.FromFloat64(dtype, append(values[:len(values):len(values)], 0))
	return device.View(unsafe.Pointer(&b[0]), dtype, int64(len(values)))
}

// Values are a tensor's elements.
func Values(t device.Tensor) []float64 {
	out := make([]float64, t.Len())
	device.LoadFloat64(out, t.DType, t.Data)
	return out
}

// Ranks are the members of a group of all.
func Ranks(n int) (all []int) {
	for r := range n {
		all = append(all, r)
	}
	return all
}

// Element is a rank's i-th: different for each, exact in every dtype up to sums of 4.
func Element(rank int, i int64) float64 { return float64((int64(rank)*7+i*3)%32) - 8 }

// Elements are a rank's first n.
func Elements(rank int, n int64) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = Element(rank, int64(i))
	}
	return v
}

// ByFormula makes every collective but an exchange, all under way at once, and checks
// what each leaves with n elements of a dtype against its formula.
func ByFormula(g *comm.Group, dtype device.DType, n int64) error {
	size, me := int64(g.Size()), g.Rank()
	root := g.Size() - 1
	// The formulas: element i of each result as a function of all ranks' elements.
	sum := func(i int64) (s float64) {
		for r := range g.Size() {
			s += Element(r, i)
		}
		return s
	}
	most := func(i int64) float64 {
		m := math.Inf(-1)
		for r := range g.Size() {
			m = max(m, Element(r, i))
		}
		return m
	}
	mine := func(i int64) float64 { return Element(me, i) }
	gathered := func(i int64) float64 { return Element(int(i/n), i%n) }
	// Inputs [n] and [size·n], and outputs; roots alone have some of them.
	one, long := func() device.Tensor { return Heap(dtype, Elements(me, n)) }, func() device.Tensor { return Heap(dtype, Elements(me, n*size)) }
	empty := func(n int64) device.Tensor { return Heap(dtype, make([]float64, n)) }
	none := func(at int, t device.Tensor) device.Tensor {
		if me != at {
			return device.Tensor{}
		}
		return t
	}
	at := func(rank int, there, other func(int64) float64) func(int64) float64 {
		if me == rank {
			return there
		}
		return other
	}
	// Start everything, then wait.
	a, b, c, d, e := one(), one(), one(), one(), empty(n*size)
	f, h, i, j := none(root, empty(n*size)), empty(n), empty(n), long()
	rows := j.Slice(0, int64(me)*n, n)
	recv, send := make([]device.Tensor, size), make([]device.Tensor, size)
	for p := range send {
		send[p] = Heap(dtype, Elements(me+10*p, n))
		recv[p] = empty(n)
	}
	works := []comm.Work{
		g.AllReduce(a, comm.Sum), g.AllReduce(b, comm.Max), g.Reduce(c, comm.Sum, root), g.Broadcast(d, root), g.AllGather(e, one()), g.Gather(f, one(), root),
		g.Scatter(h, none(root, long()), root), g.ReduceScatter(i, long()), g.ReduceScatter(rows, j), g.AllToAllV(recv, send),
	}
	for _, w := range works { // all under way at once: asynchronous forms
		if err := w.Wait(); err != nil {
			return err
		}
	}
	// Compare.
	part := func(of func(int64) float64) func(int64) float64 {
		return func(i int64) float64 { return of(int64(me)*n + i) }
	}
	err := errors.Join(
		Holds("all_reduce", a, sum), Holds("all_reduce(max)", b, most), Holds("reduce", c, at(root, sum, mine)),
		Holds("broadcast", d, func(i int64) float64 { return Element(root, i) }), Holds("all_gather", e, gathered), Holds("gather", f, gathered),
		Holds("scatter", h, part(func(i int64) float64 { return Element(root, i) })), Holds("reduce_scatter", i, part(sum)), Holds("reduce_scatter in place", rows, part(sum)),
	)
	for p := range recv {
		err = errors.Join(err, Holds("all_to_all", recv[p], func(i int64) float64 { return Element(p+10*me, i) }))
	}
	return errors.Join(err, g.Barrier())
}

// Holds is an error where an element of a tensor is not what it should be.
func Holds(what string, t device.Tensor, want func(int64) float64) error {
	if !t.Given() {
		return nil
	}
	for i, v := range Values(t) {
		if v != want(int64(i)) {
			return fmt.Errorf("%s: element %d is %g, want %g", what, i, v, want(int64(i)))
		}
	}
	return nil
}

// Exchanged sends two messages around the ring each way.
func Exchanged(g *comm.Group) error {
	n := g.Size()
	next, last := (g.Rank()+1)%n, (g.Rank()+n-1)%n
	x := Heap(device.F32, make([]float64, 5))
	err := g.Exchange([]comm.Transfer{{Peer: next, Send: true, T: Heap(device.F32, Elements(g.Rank(), 5))}, {Peer: last, T: x}}).Wait()
	if err != nil {
		return err
	}
	return Holds("exchange", x, func(i int64) float64 { return Element(last, i) })
}

// EveryDType carries a tensor of each dtype there is, and sums it: what engines cannot
// sum alike, none is asked to.
func EveryDType(g *comm.Group) error {
	small := func(rank int, i int64) float64 { return float64(int64(rank) + i%5) }
	for dtype := range device.DTypes {
		const n = 33
		values := make([]float64, n)
		for i := range values {
			values[i] = small(g.Rank(), int64(i))
		}
		in, out := Heap(dtype, values), Heap(dtype, make([]float64, n*g.Size()))
		err := g.AllGather(out, in).Wait()
		if err = errors.Join(err, Holds("all_gather of "+dtype.String(), out, func(i int64) float64 { return small(int(i/n), i%n) })); err != nil {
			return err
		}
		if !slices.Contains(Reduced, dtype) {
			err = errors.Join(refused(func() { _ = g.AllReduce(in, comm.Sum) }), refused(func() { _ = g.Reduce(in, comm.Max, 0) }), refused(func() { _ = g.ReduceScatter(in, out) }))
		} else if err = g.AllReduce(in, comm.Sum).Wait(); err == nil {
			ranks := int64(g.Size())
			err = Holds("all_reduce of "+dtype.String(), in, func(i int64) float64 { return float64(ranks*(ranks-1)/2 + ranks*(i%5)) })
		}
		if err != nil {
			return fmt.Errorf("%s: %w", dtype, err)
		}
	}
	return g.Barrier()
}

// refused is an error unless a call panics with the group's words.
func refused(call func()) (err error) {
	defer func() {
		if said := fmt.Sprint(recover()); !strings.HasPrefix(said, "comm: ") || !strings.Contains(said, "in group") {
			err = fmt.Errorf("the call was not refused (%s)", said)
		}
	}()
	call()
	return nil
}

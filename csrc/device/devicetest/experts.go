package devicetest

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"monotron/csrc/device"
)

func expertCases() []Case {
	return append(append(orderCases(), rowCases()...), groupedCases()...)
}

// orderOptions: groups of `width` experts from `start` on.
type orderOptions struct {
	start, width, groups int64
	once                 bool
}

func orderCases() []Case {
	var cases []Case
	for _, s := range routerShapes {
		for _, o := range []orderOptions{{0, 1, s.experts, false}, {1, 1, 2, false}, {0, 3, 2, false}, {0, 3, 2, true}, {s.experts, 1, 1, false}, {0, s.experts, 1, true}} {
			cases = append(cases, orderCase(s, o))
		}
	}
	for _, d := range []device.DType{device.F32, device.I32} {
		for _, s := range [][3]int64{{1, 1, 1}, {0, 2, 3}, {17, 2, 40}, {300, 8, 1000}, {33, 4, 20}} {
			cases = append(cases, placeChoicesCase(d, s[0], s[1], s[2], false), placeChoicesCase(d, s[0], s[1], s[2], true))
		}
	}
	return cases
}

func orderCase(s routerShape, o orderOptions) Case {
	name := fmt.Sprintf("%s from %d, %d groups of %d", s, o.start, o.groups, o.width)
	if o.once {
		name += " once"
	}
	setup := func(e *Env) func() {
		a := orderArgs(e, s, o)
		return func() { e.Dev.ExpertOrder(a) }
	}
	return Case{device.OpExpertOrder, name, setup, Work{Bytes: float64(12 * s.tokens * s.k)}}
}

// orderArgs are those of a case: choices of experts, some dropped.
func orderArgs(e *Env, s routerShape, o orderOptions) device.ExpertOrderArgs {
	a := device.ExpertOrderArgs{Start: o.start, Width: o.width, Once: flag(o.once)}
	first := int64(0)
	a.Experts = e.Make("Experts", device.I32, func(i int) float64 {
		if int64(i)%s.k == 0 {
			first = e.below(s.experts)
		}
		if i%11 == 5 {
			return -1 // a choice that was dropped
		}
		return float64((first + int64(i)%s.k) % s.experts)
	}, s.tokens, s.k)
	a.Rows, a.Slots = e.Out("Rows", exact, device.I32, s.tokens*s.k), e.Out("Slots", exact, device.I32, s.tokens, s.k)
	a.Offsets = e.Out("Offsets", exact, device.I32, o.groups+1)
	return a
}

// slots are different numbers below n for each of tokens·k choices, in a random order; some
// choices have none.
func (e *Env) slots(tokens, k, n int64) device.Tensor {
	entries := make([]int64, max(n, tokens*k))
	for i := range entries {
		entries[i] = int64(i)
		j := e.below(int64(i) + 1)
		entries[i], entries[j] = entries[j], entries[i]
	}
	return e.Make("Slots", device.I32, func(i int) float64 {
		if i%7 == 3 || entries[i] >= n {
			return -1
		}
		return float64(entries[i])
	}, tokens, k)
}

func placeChoicesCase(d device.DType, tokens, k, n int64, back bool) Case {
	name := fmt.Sprintf("%s %dx%d in %d", d, tokens, k, n)
	if back {
		name += " back"
	}
	setup := func(e *Env) func() {
		a := device.PlaceChoicesArgs{Slots: e.slots(tokens, k, n), Back: flag(back)}
		number := func(int) float64 { return float64(e.below(1000)) }
		if back {
			a.Placed, a.Chosen = e.Make("Placed", d, number, n), e.Out("Chosen", exact, d, tokens, k)
		} else {
			a.Placed, a.Chosen = e.Out("Placed", exact, d, n), e.Make("Chosen", d, number, tokens, k)
		}
		return func() { e.Dev.PlaceChoices(a) }
	}
	return Case{device.OpPlaceChoices, name, setup, Work{Bytes: float64(12 * tokens * k)}}
}

func rowCases() []Case {
	var cases []Case
	for _, d := range valueTypes {
		for _, s := range [][2]int64{{0, 5}, {1, 1}, {17, 5}, {65, 129}, {300, 1000}} {
			for _, pad := range []int64{0, 3} {
				cases = append(cases, gatherCase(d, s[0], s[1], pad), scaleRowsCase(d, s[0], s[1], pad, false), rowDotsCase(d, s[0], s[1], pad))
				for _, k := range []int64{1, 2, 8} {
					cases = append(cases, combineCase(d, s[0], s[1], k, pad))
				}
			}
			cases = append(cases, scaleRowsCase(d, s[0], s[1], 0, true))
		}
	}
	return append(cases, gatherCase(device.I32, 300, 8, 0), gatherCase(device.I32, 17, 3, 0))
}

func rowsName(d device.DType, rows, n, pad int64) string {
	name := fmt.Sprintf("%s %dx%d", d, rows, n)
	if pad > 0 {
		name += " strided"
	}
	return name
}

// Rows are named from two before the first to two behind the last: these are zero.
func gatherCase(d device.DType, rows, n, pad int64) Case {
	setup := func(e *Env) func() {
		in := narrow(e.Make("In", d, func(int) float64 { return float64(e.below(200)) }, rows+1, n+pad), pad)
		named := e.Make("Rows", device.I32, func(int) float64 { return float64(e.below(rows+5) - 2) }, rows)
		out := narrow(e.Out("Out", exact, d, rows, n+pad), pad)
		return func() { e.Dev.GatherRows(out, in, named) }
	}
	return Case{device.OpGatherRows, rowsName(d, rows, n, pad), setup, Work{Bytes: float64(2 * rows * n * d.Size())}}
}

func combineCase(d device.DType, tokens, n, k, pad int64) Case {
	setup := func(e *Env) func() {
		entries := tokens*k + 2
		in, slots := narrow(e.In("In", d, entries, n+pad), pad), e.slots(tokens, k, entries)
		out := narrow(e.Out("Out", tol(d, k, math.Sqrt(float64(k))), d, tokens, n+pad), pad)
		return func() { e.Dev.CombineRows(out, in, slots) }
	}
	return Case{device.OpCombineRows, rowsName(d, tokens, n, pad) + fmt.Sprintf(" of %d", k), setup, Work{Bytes: float64((1 + k) * tokens * n * d.Size())}}
}

func scaleRowsCase(d device.DType, rows, n, pad int64, inPlace bool) Case {
	name := rowsName(d, rows, n, pad)
	if inPlace {
		name += " in place"
	}
	setup := func(e *Env) func() {
		x, weight, t := e.In("X", d, rows, n+pad), e.In("Weight", device.F32, rows), tol(d, 1, 0)
		y := x
		if inPlace {
			e.Changes(x, t)
		} else {
			y = e.Out("Y", t, d, rows, n+pad)
		}
		return func() { e.Dev.ScaleRows(narrow(y, pad), narrow(x, pad), weight) }
	}
	return Case{device.OpScaleRows, name, setup, Work{Bytes: float64(2 * rows * n * d.Size())}}
}

func rowDotsCase(d device.DType, rows, n, pad int64) Case {
	setup := func(e *Env) func() {
		x, y := narrow(e.In("X", d, rows, n+pad), pad), narrow(e.In("Y", d, rows, n+pad), pad)
		out := e.Out("Out", tol(device.F32, n, math.Sqrt(float64(n))), device.F32, rows)
		return func() { e.Dev.RowDots(out, x, y) }
	}
	return Case{device.OpRowDots, rowsName(d, rows, n, pad), setup, Work{Bytes: float64(2 * rows * n * d.Size())}}
}

// A grouping is the rows of each group, and how many belong to none.
type grouping struct {
	rows []int64
	rest int64
}

func (g grouping) total() (n int64) {
	for _, r := range g.rows {
		n += r
	}
	return n
}

func (g grouping) String() string {
	if n := len(g.rows); n > 8 {
		return fmt.Sprintf("%d groups, %d rows", n, g.total())
	}
	return fmt.Sprintf("%s+%d rows", strings.ReplaceAll(strings.Trim(fmt.Sprint(g.rows), "[]"), " ", "+"), g.rest)
}

func (e *Env) offsets(g grouping) device.Tensor {
	ends := []float64{0}
	for _, r := range g.rows {
		ends = append(ends, ends[len(ends)-1]+float64(r))
	}
	return e.List("Offsets", device.I32, ends...)
}

var groupings = []grouping{{[]int64{1}, 0}, {[]int64{0, 0, 0}, 2}, {[]int64{3, 0, 5}, 0}, {[]int64{17, 1, 0, 64}, 3}, {[]int64{0, 130, 2, 33, 0}, 1}}

var groupedVariants = []matmulOptions{{}, {transB: true}, {transB: true, bias: true}, {wideC: true, bias: true}, {transB: true, strided: true, bias: true}, {transA: true}, {transA: true, strided: true}}

func groupedCases() []Case {
	var cases []Case
	for _, d := range valueTypes {
		for _, g := range groupings {
			for _, s := range [][2]int64{{1, 1}, {5, 7}, {64, 64}, {129, 65}} {
				for _, o := range groupedVariants {
					cases = append(cases, groupedMatmulCase(d, g, s[0], s[1], o))
				}
			}
			for _, n := range []int64{1, 65, 300} {
				cases = append(cases, groupedSumCase(d, g, n, 0), groupedSumCase(d, g, n, 3))
			}
		}
		for _, o := range []matmulOptions{{}, {transB: true, bias: true}, {transA: true}} {
			cases = append(cases, groupedMatmulCase(d, grouping{[]int64{300, 0, 70}, 0}, 800, 400, o))
		}
		cases = append(cases, groupedSumCase(d, grouping{[]int64{3000, 1}, 0}, 5, 0))
	}
	return cases
}

// groupedMatmulCase: rows of k with matrices [k,c]; with transA gradients [k,c] of those.
func groupedMatmulCase(d device.DType, g grouping, k, c int64, o matmulOptions) Case {
	n, groups := g.total()+g.rest, int64(len(g.rows))
	setup := func(e *Env) func() {
		pad := int64(0)
		if o.strided {
			pad = 3
		}
		// A: [n, k], rows sorted by group.
		part := func(t device.Tensor) device.Tensor { return narrow(t, pad) }
		a := device.GroupedMatmulArgs{TransA: flag(o.transA), TransB: flag(o.transB), Offsets: e.offsets(g)}
		a.A = part(e.In("A", d, n, k+pad))
		// Gradients of the matrices are added to C: [groups, k, c], a sum over the rows of each group.
		if o.transA {
			depth := max(1, g.total())
			a.B = part(e.In("B", d, n, c+pad))
			a.C = part(e.Changes(e.In("C", device.F32, groups, k, c+pad), tol(device.F32, depth, math.Sqrt(float64(depth))+1)))
			return func() { e.Dev.GroupedMatmul(a) }
		}
		// Products: B [groups, k, c] or its transpose, C [n, c].
		a.B = part(e.In("B", d, append([]int64{groups}, padded(pad, swap(o.transB, k, c)...)...)...))
		if o.bias {
			a.Bias = e.In("bias", d, groups, c)
		}
		dc := d
		if o.wideC {
			dc = device.F32
		}
		a.C = part(e.Out("C", tol(dc, k, math.Sqrt(float64(k))), dc, n, c+pad))
		return func() { e.Dev.GroupedMatmul(a) }
	}
	work := Work{Bytes: float64(d.Size() * (n*(k+c) + groups*k*c)), FLOPs: 2 * float64(g.total()) * float64(k) * float64(c)}
	return Case{device.OpGroupedMatmul, fmt.Sprintf("%s %s of %d to %d %s", d, g, k, c, o), setup, work}
}

func groupedSumCase(d device.DType, g grouping, n, pad int64) Case {
	rows := g.total() + g.rest
	setup := func(e *Env) func() {
		x, offsets := narrow(e.In("X", d, rows, n+pad), pad), e.offsets(g)
		out := e.Changes(e.In("Out", device.F32, int64(len(g.rows)), n), tol(device.F32, rows, math.Sqrt(float64(rows))+1))
		return func() { e.Dev.GroupedSum(device.GroupedSumArgs{Out: out, X: x, Offsets: offsets}) }
	}
	name := fmt.Sprintf("%s %s of %d", d, g, n)
	if pad > 0 {
		name += " strided"
	}
	return Case{device.OpGroupedSum, name, setup, Work{Bytes: float64(rows * n * d.Size())}}
}

// groupedRowsAlone checks that a row of a grouped product has the same bits whatever other rows
// there are: all rows together, then rows of a group by themselves.
func groupedRowsAlone(t *testing.T, dev *device.Device) {
	g, k, c := grouping{[]int64{1, 7, 300, 0, 34}, 0}, int64(900), int64(130)
	for _, d := range valueTypes {
		for _, transB := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%v", d, transB), func(t *testing.T) {
				e := newEnv(dev, dev, t.Name())
				defer e.scope.Release()
				a := device.GroupedMatmulArgs{A: e.In("A", d, g.total(), k), B: e.In("B", d, append([]int64{int64(len(g.rows))}, swap(transB, k, c)...)...), TransB: flag(transB)}
				a.C, a.Offsets = e.Out("C", exact, d, g.total(), c), e.offsets(g)
				dev.GroupedMatmul(a)
				for group, from := 0, int64(0); group < len(g.rows); from, group = from+g.rows[group], group+1 {
					for _, n := range []int64{1, 2, 5, 33} {
						e.sameAlone(t, a, group, from+g.rows[group]-n, min(n, g.rows[group]))
					}
				}
			})
		}
	}
}

// sameAlone multiplies n rows of a group with nothing else.
func (e *Env) sameAlone(t *testing.T, full device.GroupedMatmulArgs, group int, from, n int64) {
	t.Helper()
	if n == 0 || from < 0 {
		return
	}
	alone := grouping{rows: make([]int64, full.B.Shape[0])}
	alone.rows[group] = n
	a := full
	a.A, a.C, a.Offsets = full.A.Slice(0, from, n), e.Out("C", exact, full.C.DType, n, full.C.Last()), e.offsets(alone)
	e.Dev.GroupedMatmul(a)
	if want := full.C.Slice(0, from, n); !bytes.Equal(e.bytes(a.C), e.bytes(want)) {
		t.Errorf("group %d: rows %d to %d have different bits when they are computed alone", group, from, from+n-1)
	}
}

func (e *Env) bytes(t device.Tensor) []byte {
	raw := make([]byte, t.Bytes())
	e.Dev.Read(raw, t)
	return raw
}

package optimizer

import (
	"math"
	"math/bits"

	"monotron/csrc/device"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// Addends bounds how many numbers are added to one element of a gradient in a step
// (--layout-invariant). Zero: gradients are added in the order of the layout, with rounding.
//
// With bounds, gradients are summed in f64 on a grid: all addends are multiples of a power of
// two. It is chosen so that as many addends, each up to 2^headroom times the last step's largest,
// add up without rounding. The sum then does not depend on order or grouping.
type Addends struct {
	Leaves   int64 // sums of leaves, to every parameter
	Tokens   int64 // rows of tokens, to tables that are indexed by token or position
	Heads    int64 // of a layer, at most: leaves of norms of heads are of a head each
	Elements int64 // of all parameters of the model
}

// headroom is by how many powers of two the largest addend may grow from one step to the next
// before the step is made again.
const headroom = 6

// exact is what sums on grids need in addition to the gradients themselves.
type exact struct {
	addends Addends
	of      []*mpu.Param  // trained here, of each global tensor one
	grids   device.Tensor // f64 [of]: 0 before the first step, which is made twice
	peaks   device.Tensor // f32 [of]
	limbs   device.Tensor // f64 [device.Limbs]
	agreed  device.Tensor // f32 [2]: of all ranks the largest bound of a gradient, and whether a step is made again
	bound   float64       // of this step's gradients
}

// newExact gives the trained parameters their grids.
func (o *Optimizer) newExact() {
	if o.config.Addends.Leaves == 0 {
		return
	}
	e := &exact{addends: o.config.Addends}
	number := map[string]int64{} // of a tensor, by its name: rows that ranks share are a parameter of their own
	for _, p := range o.params {
		if _, ok := number[p.Name]; !p.Frozen && !ok {
			number[p.Name] = int64(len(e.of))
			e.of = append(e.of, p)
		}
	}
	a, n := o.device.Arena, max(1, int64(len(e.of)))
	e.grids, e.peaks = a.Zeroed(device.Optimizer, device.F64, n), a.Zeroed(device.Optimizer, device.F32, n)
	e.limbs, e.agreed = a.Zeroed(device.Optimizer, device.F64, device.Limbs), a.Zeroed(device.Optimizer, device.F32, 2)
	for _, p := range o.params {
		if i := number[p.Name]; !p.Frozen {
			p.Grid, p.Peak = e.grids.Slice(0, i, 1), e.peaks.Slice(0, i, 1)
		}
	}
	o.exact = e
}

// number is how many addends an element of p's gradient has, as a power of two, at least 2: kernels round numbers of less than 2^51 units.
func (e *exact) number(p *mpu.Param) int {
	n := e.addends.Leaves
	if p.ByHead {
		n *= e.addends.Heads
	}
	if p.ByToken {
		n += e.addends.Tokens
	}
	return max(1, bits.Len64(uint64(n-1)))
}

// grid is the least unit on which numbers as large as peak can be added without a rounding.
func (e *exact) grid(p *mpu.Param, peak float64) float64 {
	_, exponent := math.Frexp(peak) // peak < 2^exponent
	return math.Ldexp(1, exponent+e.number(p)-52)
}

// least stands for the largest addend where all are 0.
const least = 0x1p-100

// settle is called when the gradients are complete. It reports whether the grids were fine enough
// and wide enough for them, on every rank; then it sets those of the next step, else those with
// which this step is to be made again.
func (o *Optimizer) settle() (fit bool, err error) {
	e := o.exact
	if err := o.sumPeaks(); err != nil {
		return false, err
	}
	if o.device.Counts() {
		return true, nil // a dry run has no numbers
	}
	peaks, grids := device.ReadSlice[float32](o.device, e.peaks), device.ReadSlice[float64](o.device, e.grids)
	var mine [2]float32 // the bound, and 1 where a grid does not fit
	next := make([]float64, len(grids))
	copy(next, grids)
	for i, p := range e.of {
		peak := math.Max(float64(peaks[i]), least)
		if math.IsInf(peak, 0) || math.IsNaN(peak) {
			continue // the step is skipped, or ends the run
		}
		if grids[i] < e.grid(p, peak) {
			mine[1] = 1
		}
		mine[0] = max(mine[0], float32(math.Ldexp(peak, e.number(p))))
		next[i] = e.grid(p, peak) * (1 << headroom)
	}
	all := mine[:]
	if size(o.groups.World) > 1 {
		device.WriteSlice(o.device, e.agreed, mine[:])
		if err := o.groups.World.AllReduce(e.agreed, comm.Max).Wait(); err != nil {
			return false, err
		}
		all = device.ReadSlice[float32](o.device, e.agreed)
	}
	e.bound = float64(all[0])
	device.WriteSlice(o.device, e.grids, next)
	return all[1] == 0, nil
}

// sumPeaks makes the peaks those of all ranks that add to the same gradients; of experts those of all
// experts of a layer, which the ranks of its stage have between them.
func (o *Optimizer) sumPeaks() error {
	e, f := o.exact, o.groups.Families[mpu.Dense]
	for _, g := range []*comm.Group{f.Data, f.Cut} {
		if size(g) > 1 {
			if err := g.AllReduce(e.peaks, comm.Max).Wait(); err != nil {
				return err
			}
		}
	}
	for _, p := range e.of { // a tied table's other copy
		if tied(p) {
			if err := p.SumOver.AllReduce(p.Peak, comm.Max).Wait(); err != nil {
				return err
			}
		}
	}
	return nil
}

// readSums rounds the gradients to the f32 that the update takes.
func (o *Optimizer) readSums() {
	for _, b := range o.buckets {
		if !b.frozen {
			o.device.Copy(b.ownGrads, b.ownSums)
		}
	}
}

// exactSquares replaces the sum of squares among the statistics, which the ranks have added up in
// some order, by one that has none.
func (o *Optimizer) exactSquares() error {
	e, d := o.exact, o.device
	_, exponent := math.Frexp(e.bound)
	a := device.ExactSquaresArgs{Out: e.limbs, Scale: math.Ldexp(1, -exponent), Bits: 52 - int64(bits.Len64(uint64(e.addends.Elements)))}
	d.Fill(e.limbs, 0)
	for _, s := range o.segments {
		if o.counts(s.param) {
			a.X = s.grad
			d.ExactSquares(a)
		}
	}
	if g := o.statsGroup(); size(g) > 1 {
		if err := g.AllReduce(e.limbs, comm.Sum).Wait(); err != nil {
			return err
		}
	}
	squares := 0.0
	for _, limb := range device.ReadSlice[float64](d, e.limbs) {
		squares += math.Ldexp(limb, 2*exponent)
	}
	device.WriteSlice(d, o.stats.Slice(0, device.StatSquares, 1), []float64{squares})
	return nil
}

// storedGrids lists the grids, which a checkpoint keeps: with others a resumed run would continue
// with other bits.
func (o *Optimizer) storedGrids(all []mpu.Stored, mine map[*mpu.Param]bool) []mpu.Stored {
	if o.exact == nil {
		return all
	}
	dense := o.groups.Families[mpu.Dense]
	for _, p := range o.exact.of {
		write := p.Owner && mine[p] && rank(dense.Cut) == 0
		if p.Family == mpu.Experts { // every rank of the stage has some, and the grid is of all of them
			write = rank(dense.Data) == 0 && rank(dense.Cut) == 0
		}
		all = append(all, mpu.Stored{Name: StoredGrid + p.Name, Global: []int64{1}, Tensor: p.Grid,
			Pieces: []mpu.Piece{{From: []int64{0}, Size: []int64{1}}}, Write: write})
	}
	return all
}

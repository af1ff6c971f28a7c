package device

import (
	"fmt"
	"time"
)

// Product is a matrix product to time: C [M,N] = op(A) [M,K] · op(B) [K,N].
type Product struct {
	M, N, K        int64
	TransA, TransB bool
	Wide           bool // C is f32 whatever the operands are
	Accumulate     bool // C +=; implies Wide
}

func (p Product) String() string {
	mark := func(t bool) string {
		if t {
			return "t"
		}
		return "n"
	}
	text := fmt.Sprintf("%dx%dx%d %s%s", p.M, p.N, p.K, mark(p.TransA), mark(p.TransB))
	if p.Accumulate {
		text += " +="
	}
	return text
}

// Speed is how fast something runs, in operations a second.
type Speed struct {
	Burst     float64 // its fastest repetition
	Sustained float64 // all repetitions together
}

// Better is the higher of each.
func (s Speed) Better(t Speed) Speed {
	return Speed{max(s.Burst, t.Burst), max(s.Sustained, t.Sustained)}
}

// MatmulSpeed repeats product p with operands of dtype for about `budget`, three
// times at least, one after the other. The first one warms up and does not count.
func MatmulSpeed(d *Device, dtype DType, p Product, budget time.Duration) (Speed, error) {
	s := d.Arena.Scope(Workspace)
	defer s.Release()
	a := MatmulArgs{A: operand(s, dtype, p.M, p.K, p.TransA), B: operand(s, dtype, p.K, p.N, p.TransB)}
	a.TransA, a.TransB, a.Accumulate = flag(p.TransA), flag(p.TransB), flag(p.Accumulate)
	if p.Wide || p.Accumulate {
		dtype = F32
	}
	a.C = s.Alloc(dtype, p.M, p.N)
	random(d, s, a.A)
	random(d, s, a.B)
	d.Fill(a.C, 0)
	best, mean, err := repeat(d, budget, func() { d.Matmul(a) })
	flops := 2 * float64(p.M) * float64(p.N) * float64(p.K)
	return Speed{flops / best.Seconds(), flops / mean.Seconds()}, err
}

func operand(s *Scope, dtype DType, rows, columns int64, transposed bool) Tensor {
	if transposed {
		rows, columns = columns, rows
	}
	return s.Alloc(dtype, rows, columns)
}

// random fills t, as chips take less time, and power, for equal numbers.
func random(d *Device, s *Scope, t Tensor) {
	step, numbers := s.Alloc(I64, 1), s.Alloc(F32, t.Dims()...)
	defer s.Free(step)
	defer s.Free(numbers)
	d.Fill(step, 0)
	d.Uniform(UniformArgs{Out: numbers, Step: step, Stream: 1})
	d.Copy(t, numbers)
}

func flag(on bool) int32 {
	if on {
		return 1
	}
	return 0
}

// CopySpeed is the best speed of a copy of `bytes` within about `budget`, bytes
// read and bytes written counted, a second.
func CopySpeed(d *Device, bytes int64, budget time.Duration) (float64, error) {
	s := d.Arena.Scope(Workspace)
	defer s.Release()
	from, to := s.Alloc(F32, bytes/4), s.Alloc(F32, bytes/4)
	d.Fill(from, 1)
	best, _, err := repeat(d, budget, func() { d.Copy(to, from) })
	return 2 * float64(bytes) / best.Seconds(), err
}

// apart is how long a wait for a device is made to take: it then counts for little
// next to the awaited work.
const apart = 5 * time.Millisecond

// repeat calls until `budget` is spent, three times at least; the shortest call
// and the mean of all. Where work is done behind the host's back, so many calls are
// enqueued at once that waiting for them does not count.
func repeat(d *Device, budget time.Duration, call func()) (best, mean time.Duration, err error) {
	// run: the mean of n calls, waited for once.
	run := func(n int) (each time.Duration, err error) {
		start := time.Now()
		for range n {
			call()
		}
		err = d.Sync()
		return max(1, time.Since(start)/time.Duration(n)), err
	}
	// The first call is not measured: it allocates, compiles and loads.
	if _, err := run(1); err != nil {
		return 1, 1, err
	}
	// On a device so many calls that they take `apart`, by the time of one.
	together := 1
	if !d.OnHost() {
		once, err := run(1)
		if err != nil {
			return 1, 1, err
		}
		together = int(max(1, min(apart/once, 1000)))
	}
	begin, rounds := time.Now(), 0
	for ; rounds < 3 || time.Since(begin) < budget; rounds++ {
		each, err := run(together)
		if err != nil {
			return 1, 1, err
		}
		if best == 0 || each < best {
			best = each
		}
	}
	return best, max(1, time.Since(begin)/time.Duration(rounds*together)), nil
}

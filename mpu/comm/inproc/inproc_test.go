package inproc

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/mpu/comm"
	"monotron/mpu/comm/commtest"
	"monotron/mpu/comm/reduce"
)

// spmd runs f on n ranks that share one group.
func spmd(n int, f func(g *comm.Group) error) error {
	w := NewWorld(n)
	return w.Run(func(rank int) error {
		d := ref.Open()
		defer d.Arena.Close()
		g, err := w.Group(rank, "all", commtest.Ranks(n), d)
		if err != nil {
			return err
		}
		return f(g)
	})
}

// Claim: every collective gives the formula's result on every rank, for all dtypes,
// sizes around the reduce.Tile, and 1 to 4 ranks.
func TestCollectivesByFormula(t *testing.T) {
	for _, dtype := range commtest.Reduced {
		for ranks := 1; ranks <= 4; ranks++ {
			for _, n := range []int64{0, 1, 5, reduce.Tile - 1, reduce.Tile, 2*reduce.Tile + 3} {
				if err := spmd(ranks, func(g *comm.Group) error { return commtest.ByFormula(g, dtype, n) }); err != nil {
					t.Errorf("%s, %d ranks, %d elements: %v", dtype, ranks, n, err)
				}
			}
		}
	}
}

// Claim: every dtype travels, and those that an engine might not know are not summed.
func TestEveryDType(t *testing.T) {
	for ranks := 1; ranks <= 3; ranks++ {
		if err := spmd(ranks, commtest.EveryDType); err != nil {
			t.Errorf("%d ranks: %v", ranks, err)
		}
	}
}

// Claim: sums are made in rank order, 16-bit ones in f32 and rounded once, so
// that bits repeat whatever the timing.
func TestSumsInRankOrder(t *testing.T) {
	const ranks, n = 4, 3*reduce.Tile + 5
	random := rand.New(rand.NewPCG(1, 2))
	inputs := make([][]float64, ranks)
	for r := range inputs {
		inputs[r] = make([]float64, n)
		for i := range inputs[r] {
			inputs[r][i] = random.NormFloat64() * math.Exp(4*random.NormFloat64())
		}
	}
	for _, dtype := range []device.DType{device.F32, device.BF16, device.F16} {
		rounded := make([][]float64, ranks)
		for r := range rounded {
			rounded[r] = device.ToFloat64(dtype, device.FromFloat64(dtype, inputs[r]))
		}
		want := make([]float64, n)
		for i := range want {
			s := float32(rounded[0][i])
			for r := 1; r < ranks; r++ {
				s += float32(rounded[r][i])
			}
			want[i] = float64(s)
		}
		want = device.ToFloat64(dtype, device.FromFloat64(dtype, want))
		for range 5 {
			err := spmd(ranks, func(g *comm.Group) error {
				x := commtest.Heap(dtype, inputs[g.Rank()])
				time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
				if err := g.AllReduce(x, comm.Sum).Wait(); err != nil {
					return err
				}
				return commtest.Holds("all_reduce of "+dtype.String(), x, func(i int64) float64 { return want[i] })
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Claim: max keeps a NaN of any rank, so that an overflow is seen everywhere.
func TestMaxKeepsNaN(t *testing.T) {
	for _, dtype := range []device.DType{device.F32, device.F64, device.BF16} {
		err := spmd(3, func(g *comm.Group) error {
			v := []float64{1, 2}
			if g.Rank() == 1 {
				v[1] = math.NaN()
			}
			x := commtest.Heap(dtype, v)
			if err := g.AllReduce(x, comm.Max).Wait(); err != nil {
				return err
			}
			if got := commtest.Values(x); got[0] != 1 || !math.IsNaN(got[1]) {
				return fmt.Errorf("%v", got)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", dtype, err)
		}
	}
}

// Claim: groups overlap freely, as tp and dp do; each keeps its own numbering.
func TestGroupsCross(t *testing.T) {
	w := NewWorld(4)
	err := w.Run(func(rank int) error {
		d := ref.Open()
		tp, err := w.Group(rank, "tp", []int{rank &^ 1, rank | 1}, d)
		if err != nil {
			return err
		}
		dp, err := w.Group(rank, "dp", []int{rank & 1, rank&1 + 2}, d)
		if err != nil {
			return err
		}
		for range 50 {
			x := commtest.Heap(device.I64, []float64{float64(rank)})
			if err := tp.AllReduce(x, comm.Sum).Wait(); err != nil {
				return err
			}
			if err := dp.AllReduce(x, comm.Sum).Wait(); err != nil {
				return err
			}
			if got := commtest.Values(x)[0]; got != 6 {
				return fmt.Errorf("sum over both is %g", got)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Claim: exchanges need no buffer and no order of posting: a bidirectional ring
// and several messages between one pair, received in order of sending.
func TestExchangePairsInOrder(t *testing.T) {
	const ranks, messages = 4, 3
	err := spmd(ranks, func(g *comm.Group) error {
		var transfers []comm.Transfer
		var in []device.Tensor
		left, right := (g.Rank()+ranks-1)%ranks, (g.Rank()+1)%ranks
		for m := range messages {
			for _, peer := range []int{left, right} {
				x := commtest.Heap(device.F32, make([]float64, m+1))
				in = append(in, x)
				transfers = append(transfers, comm.Transfer{Peer: peer, T: x}, comm.Transfer{Peer: peer, Send: true, T: commtest.Heap(device.F32, commtest.Elements(100*g.Rank()+10*peer+m, int64(m+1)))})
			}
		}
		if err := g.Exchange(transfers).Wait(); err != nil {
			return err
		}
		for m := range messages {
			for k, peer := range []int{left, right} {
				if err := commtest.Holds(fmt.Sprint("message ", m), in[2*m+k], func(i int64) float64 { return commtest.Element(100*peer+10*g.Rank()+m, i) }); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Claim: a call that ranks disagree on is one error on all of them that names
// group, ranks and both calls.
func TestMismatchIsOneError(t *testing.T) {
	f32, bf16 := commtest.Heap(device.F32, make([]float64, 8)), commtest.Heap(device.BF16, make([]float64, 8))
	cases := []struct {
		name string
		call [2]func(g *comm.Group) comm.Work
		want []string
	}{
		{"op", [2]func(*comm.Group) comm.Work{func(g *comm.Group) comm.Work { return g.AllReduce(f32, comm.Sum) }, func(g *comm.Group) comm.Work { return g.Broadcast(f32, 0) }},
			[]string{"group all [0 1]", "all_reduce(sum) of 8 f32 on rank 0", "broadcast of 8 f32 with rank 0 on rank 1"}},
		{"reduction", [2]func(*comm.Group) comm.Work{func(g *comm.Group) comm.Work { return g.AllReduce(f32, comm.Sum) }, func(g *comm.Group) comm.Work { return g.AllReduce(f32, comm.Max) }},
			[]string{"all_reduce(sum) of 8 f32 on rank 0", "all_reduce(max) of 8 f32 on rank 1"}},
		{"size", [2]func(*comm.Group) comm.Work{func(g *comm.Group) comm.Work { return g.AllReduce(f32, comm.Sum) }, func(g *comm.Group) comm.Work { return g.AllReduce(f32.Slice(0, 0, 4), comm.Sum) }},
			[]string{"of 8 f32 on rank 0", "of 4 f32 on rank 1"}},
		{"dtype", [2]func(*comm.Group) comm.Work{func(g *comm.Group) comm.Work { return g.AllReduce(f32, comm.Sum) }, func(g *comm.Group) comm.Work { return g.AllReduce(bf16, comm.Sum) }},
			[]string{"of 8 f32", "of 8 bf16"}},
		{"root", [2]func(*comm.Group) comm.Work{func(g *comm.Group) comm.Work { return g.Broadcast(f32, 0) }, func(g *comm.Group) comm.Work { return g.Broadcast(f32, 1) }},
			[]string{"with rank 0 on rank 0", "with rank 1 on rank 1"}},
		{"all-to-all", [2]func(*comm.Group) comm.Work{
			func(g *comm.Group) comm.Work {
				return g.AllToAllV([]device.Tensor{f32, f32}, []device.Tensor{f32, f32.Slice(0, 0, 3)})
			},
			func(g *comm.Group) comm.Work {
				return g.AllToAllV([]device.Tensor{f32, f32}, []device.Tensor{f32, f32})
			}},
			[]string{"all_to_all of 3 f32 with rank 1 on rank 0", "all_to_all of 8 f32 with rank 0 on rank 1"}},
		{"message", [2]func(*comm.Group) comm.Work{
			func(g *comm.Group) comm.Work { return g.Exchange([]comm.Transfer{{Peer: 1, Send: true, T: f32}}) },
			func(g *comm.Group) comm.Work { return g.Exchange([]comm.Transfer{{Peer: 0, T: bf16}}) }},
			[]string{"from rank 0 to rank 1", "8 elements of type f32 at the sender, but 8 of type bf16 at the receiver"}},
	}
	for _, c := range cases {
		var got [2]error
		err := spmd(2, func(g *comm.Group) error {
			got[g.Rank()] = c.call[g.Rank()](g).Wait()
			return got[g.Rank()]
		})
		if got[0] == nil || got[0] != got[1] || !errors.Is(err, got[0]) {
			t.Errorf("%s: errors %v and %v, world %v", c.name, got[0], got[1], err)
			continue
		}
		var m *comm.Mismatch
		if !errors.As(got[0], &m) || m.Group != "all" || m.Seq != 0 || len(m.Members) != 2 || len(m.Calls) != 2 || m.Calls[0].Rank != 0 || m.Calls[1].Rank != 1 {
			t.Errorf("%s: %+v is no mismatch of the first calls of both ranks", c.name, got[0])
		}
		for _, want := range c.want {
			if text := got[0].Error(); !strings.Contains(text, want) {
				t.Errorf("%s: %q lacks %q", c.name, text, want)
			}
		}
	}
}

// Claim: ranks that wait for each other get an error, each with what it waits for,
// instead of hanging; also where one has ended.
func TestStandstillIsNamed(t *testing.T) {
	x := func() device.Tensor { return commtest.Heap(device.F32, make([]float64, 4)) }
	w := NewWorld(2)
	err := w.Run(func(rank int) error {
		d := ref.Open()
		a, _ := w.Group(rank, "tp", []int{0, 1}, d)
		b, _ := w.Group(rank, "dp", []int{0, 1}, d)
		if rank == 1 {
			a, b = b, a
		}
		if err := a.AllReduce(x(), comm.Sum).Wait(); err != nil {
			return err
		}
		return b.AllReduce(x(), comm.Sum).Wait()
	})
	for _, want := range []string{"wait for each other", "rank 0 is in all_reduce(sum) of 4 f32 #0 of group tp [0 1], which ranks [1] have not entered", "rank 1 is in all_reduce(sum) of 4 f32 #0 of group dp [0 1], which ranks [0] have not entered"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}

	err = spmd(3, func(g *comm.Group) error {
		if g.Rank() == 2 {
			return nil
		}
		return g.Exchange([]comm.Transfer{{Peer: 2, T: x()}}).Wait()
	})
	for _, want := range []string{"rank 0 is in an exchange of group all [0 1 2], with 1 of 1 messages incomplete", "rank 2 has ended"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

// Claim: a rank that stays away longer than the timeout, busy with something that
// is not communication, is named, with what it last called.
func TestTimeoutNamesWhoIsAway(t *testing.T) {
	w := NewWorld(2)
	w.Timeout = 4 * time.Second // the barrier's too, which a busy machine must not miss
	away := make(chan struct{})
	err := w.Run(func(rank int) error {
		g, err := w.Group(rank, "dp", []int{0, 1}, ref.Open())
		if err != nil {
			return err
		}
		if err := g.Barrier(); err != nil {
			return err
		}
		if rank == 1 {
			<-away
			return nil
		}
		defer close(away)
		return g.AllReduce(commtest.Heap(device.F32, make([]float64, 4)), comm.Sum).Wait()
	})
	for _, want := range []string{"rank 0 has waited for its peers for 4s", "rank 0 is in all_reduce(sum) of 4 f32 #1 of group dp [0 1], which ranks [1] have not entered", "rank 1 has been computing since barrier #0 of group dp [0 1]"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

// Claim: a rank that fails ends its peers' waits with its own error; what comes
// after gets it too.
func TestFailureReachesPeers(t *testing.T) {
	broken := errors.New("the disk is full")
	var got [3]error
	var after [3]error
	err := spmd(3, func(g *comm.Group) error {
		if g.Rank() == 1 {
			time.Sleep(time.Millisecond)
			return broken
		}
		got[g.Rank()] = g.Barrier()
		after[g.Rank()] = g.AllReduce(commtest.Heap(device.F32, make([]float64, 4)), comm.Sum).Wait()
		return got[g.Rank()]
	})
	for _, r := range []int{0, 2} {
		if !errors.Is(got[r], broken) || !errors.Is(after[r], broken) || !strings.Contains(got[r].Error(), "rank 1: the disk is full") {
			t.Errorf("rank %d: %v, then %v", r, got[r], after[r])
		}
	}
	if !errors.Is(err, broken) {
		t.Errorf("world: %v", err)
	}
}

// Claim: Abort from outside, such as a signal, ends waits.
func TestAbort(t *testing.T) {
	w := NewWorld(2)
	stop := errors.New("stopped")
	entered := make(chan struct{})
	go func() { <-entered; w.Abort(stop) }()
	err := w.Run(func(rank int) error {
		g, err := w.Group(rank, "all", []int{0, 1}, ref.Open())
		if err != nil || rank == 1 {
			<-entered
			for w.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			return err
		}
		work := g.AllReduce(commtest.Heap(device.F32, make([]float64, 4)), comm.Sum)
		close(entered)
		return work.Wait()
	})
	if !errors.Is(err, stop) {
		t.Error(err)
	}
}

// Claim: a rank that ends with a collective under way is reported: its memory must
// not be touched afterwards.
func TestEndWithWorkUnderWay(t *testing.T) {
	err := spmd(2, func(g *comm.Group) error {
		if g.Rank() == 0 {
			g.AllReduce(commtest.Heap(device.F32, make([]float64, 4)), comm.Sum)
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "rank 0 ended while its all_reduce(sum) of 4 f32 #0 of group all [0 1] was waiting for other ranks") {
		t.Error(err)
	}
}

// Claim: memory that a device lacks is the rank's error, not the process's end.
func TestOutOfMemoryIsAnError(t *testing.T) {
	err := spmd(2, func(g *comm.Group) error {
		if g.Rank() == 1 {
			ref.Open().Arena.Alloc(device.Parameters, device.F32, 1<<50)
		}
		return g.Barrier()
	})
	var out *device.OutOfMemory
	if !errors.As(err, &out) || !strings.Contains(err.Error(), "rank 1") {
		t.Error(err)
	}
}

// Claim: asking for a group that cannot be is an error.
func TestBadGroups(t *testing.T) {
	w := NewWorld(2)
	for _, members := range [][]int{{0, 2}, {0, 0}, {-1, 0}, {1}, nil} {
		if _, err := w.Group(0, "bad", members, ref.Open()); err == nil {
			t.Errorf("group %v was made", members)
		}
	}
}

// Claim: a storm of collectives of random sizes over random splits of ranks ends
// with the right sums: nothing is lost, reused too early or delayed.
func TestStorm(t *testing.T) {
	const ranks, rounds = 6, 60
	w := NewWorld(ranks)
	var reached atomic.Int64
	err := w.Run(func(rank int) error {
		d := ref.Open()
		same := rand.New(rand.NewPCG(7, 7)) // the same on every rank
		for round := range rounds {
			order := same.Perm(ranks)
			cut := same.IntN(ranks-1) + 1
			n := int64(same.IntN(3*reduce.Tile) + 1)
			members := order[:cut]
			for i, r := range order {
				if r == rank && i >= cut {
					members = order[cut:]
				}
			}
			g, err := w.Group(rank, "mix", members, d)
			if err != nil {
				return err
			}
			x := commtest.Heap(device.F32, commtest.Elements(rank, n))
			if err := g.AllReduce(x, comm.Sum).Wait(); err != nil {
				return err
			}
			want := func(i int64) (s float64) {
				for _, r := range members {
					s += commtest.Element(r, i)
				}
				return s
			}
			if err := commtest.Holds(fmt.Sprint("round ", round), x, want); err != nil {
				return err
			}
			reached.Add(1)
		}
		return nil
	})
	if err != nil || reached.Load() != ranks*rounds {
		t.Errorf("%v after %d", err, reached.Load())
	}
}

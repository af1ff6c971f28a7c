//go:build cgo && linux

package nccl

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"monotron/csrc/comm/nccl"
	"monotron/csrc/comm/nccl/fake"
	"monotron/csrc/device"
	"monotron/mpu/comm"
	"monotron/mpu/comm/commtest"
	"monotron/mpu/comm/inproc"
)

var standinDir string // where it is built

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "standin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	standinDir = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// library is the stand-in, built once.
var library = sync.OnceValues(func() (*fake.Library, error) { return fake.Build(standinDir) })

// gpus runs f on n ranks, each with a stand-in GPU, in NCCL groups that meet in
// process, and checks what NCCL would have forbidden.
func gpus(t *testing.T, n int, limit time.Duration, f func(g *comm.Group, gpu *fake.GPU) error) error {
	t.Helper()
	return ranks(t, n, limit, func(over *World, d *device.Device, rank int, gpu *fake.GPU) error {
		g, err := over.Group(rank, "all", commtest.Ranks(n), d)
		if err != nil {
			return err
		}
		return f(g, gpu)
	})
}

// ranks is gpus before the ranks have met.
func ranks(t *testing.T, n int, limit time.Duration, f func(over *World, d *device.Device, rank int, gpu *fake.GPU) error) error {
	t.Helper()
	lib, err := library()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("MONOTRON_NCCL", lib.Path)
	calls, err := nccl.Open()
	if err != nil {
		t.Fatal(err)
	}
	lib.Forget()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // tensors of Go's memory, which only C holds for a while
	w := inproc.NewWorld(n)
	err = w.Run(func(rank int) error {
		gpu := lib.GPU()
		d := device.New("cuda", gpu)
		over := NewWorld(calls, w, d, limit)
		err := f(over, d, rank, gpu)
		return errors.Join(err, over.End(err))
	})
	for end := time.Now().Add(30 * time.Second); err != nil && lib.Live() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // ranks that have failed give up behind everybody's back
	}
	if sins := lib.Sins(); sins != "" && err == nil {
		t.Errorf("NCCL would forbid: %s", sins)
	}
	if lib.Live() != 0 {
		t.Errorf("%d communicators were left behind", lib.Live())
	}
	return err
}

// Claim: every collective over NCCL's calls gives the formula's result on every
// rank, with no call that NCCL forbids and no communicator left.
func TestNCCLByFormula(t *testing.T) {
	for _, dtype := range commtest.Reduced {
		for ranks := 2; ranks <= 4; ranks++ {
			for _, n := range []int64{0, 1, 5, 1000} {
				if err := gpus(t, ranks, time.Minute, func(g *comm.Group, _ *fake.GPU) error { return commtest.ByFormula(g, dtype, n) }); err != nil {
					t.Errorf("%s, %d ranks, %d elements: %v", dtype, ranks, n, err)
				}
			}
		}
	}
}

// Claim: every dtype travels over NCCL, and those that it has no number for are not
// summed: neither by the group, nor by the engine under it.
func TestNCCLEveryDType(t *testing.T) {
	err := gpus(t, 3, time.Minute, func(g *comm.Group, _ *fake.GPU) error { return commtest.EveryDType(g) })
	if err != nil {
		t.Error(err)
	}
	err = ranks(t, 2, time.Minute, func(over *World, d *device.Device, rank int, _ *fake.GPU) error {
		g, err := over.Group(rank, "all", commtest.Ranks(2), d)
		if err != nil {
			return err
		}
		ids := commtest.Heap(device.U16, make([]float64, 4))
		for _, op := range []comm.Op{comm.AllReduce, comm.Reduce, comm.ReduceScatter} {
			err := (&group{world: over, on: over.all()[0]}).call(&comm.Collective{Op: op, Reduce: comm.Sum, In: ids, Out: ids})
			if err == nil || !strings.Contains(err.Error(), "of u16 is not supported") {
				return fmt.Errorf("%s: %w", op, err)
			}
		}
		return g.Barrier()
	})
	if err != nil {
		t.Error(err)
	}
}

// Claim: a batched exchange pairs the i-th send with the i-th receive, in both
// directions at once.
func TestNCCLExchange(t *testing.T) {
	err := gpus(t, 2, time.Minute, func(g *comm.Group, _ *fake.GPU) error {
		me, peer := g.Rank(), 1-g.Rank()
		a, b := commtest.Heap(device.F32, commtest.Elements(me, 100)), commtest.Heap(device.F32, commtest.Elements(me+5, 7))
		x, y := commtest.Heap(device.F32, make([]float64, 100)), commtest.Heap(device.F32, make([]float64, 7))
		err := g.Exchange([]comm.Transfer{{Peer: peer, Send: true, T: a}, {Peer: peer, T: x}, {Peer: peer, Send: true, T: b}, {Peer: peer, T: y}}).Wait()
		return errors.Join(err, commtest.Holds("first", x, func(i int64) float64 { return commtest.Element(peer, i) }), commtest.Holds("second", y, func(i int64) float64 { return commtest.Element(peer+5, i) }))
	})
	if err != nil {
		t.Error(err)
	}
}

// Claim: a collective starts after the ops before it, and the ops after Wait
// start after it, while the host continues: streams are ordered, not waited for.
func TestNCCLFollowsTheOps(t *testing.T) {
	err := gpus(t, 2, time.Minute, func(g *comm.Group, gpu *fake.GPU) error {
		gpu.Waits = false
		x, release := commtest.Heap(device.F32, make([]float64, 64)), gpu.Hold()
		stalled := time.AfterFunc(20*time.Second, release) // a host that waits is released, and reported
		gpu.Fill(x, 10+g.Rank())
		work := g.AllReduce(x, comm.Sum)
		if err := work.Wait(); err != nil {
			return err
		}
		late := commtest.Heap(device.F32, make([]float64, 1))
		gpu.Fill(late, 1) // after the collective
		if !stalled.Stop() {
			return errors.New("the host waited for the ops before the collective")
		}
		release()
		if err := gpu.Sync(); err != nil {
			return err
		}
		return errors.Join(commtest.Holds("sum", x, func(int64) float64 { return 21 }), commtest.Holds("the op after it", late, func(int64) float64 { return 1 }))
	})
	if err != nil {
		t.Error(err)
	}
}

// Claim (comm.Behind): it reports when the GPU comes to a collective, not when the host calls
// it, and when that is done, not when Wait has ordered streams; late callers get both too.
func TestNCCLReports(t *testing.T) {
	err := gpus(t, 2, time.Minute, func(g *comm.Group, gpu *fake.GPU) error {
		gpu.Waits = false
		x, release := commtest.Heap(device.F32, make([]float64, 64)), gpu.Hold()
		work := g.AllReduce(x, comm.Sum)
		reported := make(chan string, 2)
		work.(comm.Behind).Tell(func() { reported <- "begun" }, func() { reported <- "over" })
		if err := work.Wait(); err != nil {
			return err
		}
		select {
		case what := <-reported:
			release()
			return fmt.Errorf("%s while the ops before it are not done", what)
		case <-time.After(5 * glance):
		}
		release()
		if a, b := <-reported, <-reported; a != "begun" || b != "over" {
			return fmt.Errorf("told %s, %s", a, b)
		}
		late := 0
		work.(comm.Behind).Tell(func() { late++ }, func() { late++ })
		if late != 2 {
			return fmt.Errorf("who asks late is told %d times", late)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Claim (comm.Behind): a collective that the GPU has come to is not over before the last peer
// has come too.
func TestNCCLIsNotOverAlone(t *testing.T) {
	come := make(chan struct{})
	err := gpus(t, 2, time.Minute, func(g *comm.Group, gpu *fake.GPU) error {
		gpu.Waits = false
		x := commtest.Heap(device.F32, make([]float64, 64))
		if g.Rank() == 1 {
			<-come
			return g.AllReduce(x, comm.Sum).Wait()
		}
		reported := make(chan string, 2)
		work := g.AllReduce(x, comm.Sum)
		work.(comm.Behind).Tell(func() { reported <- "begun" }, func() { reported <- "over" })
		first, early := <-reported, ""
		select {
		case early = <-reported:
		case <-time.After(5 * glance):
		}
		if close(come); first != "begun" || early != "" {
			return fmt.Errorf("told %s, and %q before the peer has come", first, early)
		}
		if last := <-reported; last != "over" {
			return fmt.Errorf("told %s at the end", last)
		}
		return work.Wait()
	})
	if err != nil {
		t.Error(err)
	}
}

// Claim: a rank that fails, a rank that never comes, and ranks that disagree end
// all ranks, with the cause on each; the error of a wait in vain names NCCL's interface.
func TestNCCLFailures(t *testing.T) {
	t.Setenv("NCCL_SOCKET_IFNAME", "=eth7")
	for name, c := range map[string]struct {
		limit time.Duration
		f     func(g *comm.Group, over *World) error
		want  []string
	}{
		"fails": {time.Minute, func(g *comm.Group, over *World) error {
			if g.Rank() == 1 {
				return errors.New("rank 1 broke")
			}
			x := commtest.Heap(device.F32, make([]float64, 8))
			err := g.AllReduce(x, comm.Sum).Wait()
			for range 500 { // the host is not blocked by a collective; the next call reports
				if err != nil {
					return err
				}
				time.Sleep(10 * time.Millisecond)
				err = g.AllReduce(x, comm.Sum).Wait()
			}
			return errors.New("rank 0 was never told")
		}, []string{"rank 1 broke"}},
		"stays away": {2 * time.Second, func(g *comm.Group, over *World) error {
			if g.Rank() == 1 {
				for over.Err() == nil {
					time.Sleep(glance)
				}
				return nil
			}
			return g.AllReduce(commtest.Heap(device.F32, make([]float64, 8)), comm.Sum).Wait()
		}, []string{"all_reduce(sum) of 8 f32 #0 of group all [0 1] has not completed after", "or the network of the GPUs hangs (NCCL_SOCKET_IFNAME is =eth7)"}},
		"disagrees": {time.Minute, func(g *comm.Group, over *World) error {
			return g.AllReduce(commtest.Heap(device.F32, make([]float64, 8+g.Rank())), comm.Sum).Wait()
		}, []string{"invalid usage: rank"}},
	} {
		err := ranks(t, 2, c.limit, func(over *World, d *device.Device, rank int, gpu *fake.GPU) error {
			gpu.Waits = false
			g, err := over.Group(rank, "all", commtest.Ranks(2), d)
			if err != nil {
				return err
			}
			return c.f(g, over)
		})
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}

// Claim: a communicator that is opened while a peer fails is given up too.
func TestNCCLFailsWhileOpening(t *testing.T) {
	lost := errors.New("lost while opening")
	err := ranks(t, 2, time.Minute, func(over *World, d *device.Device, rank int, gpu *fake.GPU) error {
		gpu.OnNewStream = func() { over.Abort(lost) }
		_, err := over.Group(rank, "all", commtest.Ranks(2), d)
		return err
	})
	if !errors.Is(err, lost) {
		t.Errorf("%v, want %v", err, lost)
	}
}

// Claim: a rank whose peers have the id, and fail before they join, gets the error.
func TestNCCLFailsBeforeOpening(t *testing.T) {
	lost := errors.New("lost before opening")
	err := ranks(t, 2, time.Minute, func(over *World, d *device.Device, rank int, gpu *fake.GPU) error {
		if rank == 0 {
			_, err := over.Group(rank, "all", commtest.Ranks(2), d)
			return err
		}
		via, err := over.host.Group(rank, "all", commtest.Ranks(2), d)
		if err == nil {
			_, err = over.share(via)
		}
		return errors.Join(err, lost)
	})
	if !errors.Is(err, lost) {
		t.Errorf("%v, want %v", err, lost)
	}
}

// Claim: ranks of several groups leave them, and give them up, without waiting for each
// other: NCCL ends a communicator once all its ranks on the host end it, and not at once.
func TestNCCLLeavesSeveralGroups(t *testing.T) {
	broke := errors.New("broke")
	for _, want := range []error{nil, broke} {
		over := make(chan error, 1)
		go func() {
			over <- ranks(t, 3, time.Minute, func(over *World, d *device.Device, rank int, _ *fake.GPU) error {
				for i := range 8 {
					g, err := over.Group(rank, fmt.Sprint("group ", i), commtest.Ranks(3), d)
					if err != nil {
						return err
					}
					if err := g.AllReduce(commtest.Heap(device.F32, make([]float64, 8)), comm.Sum).Wait(); err != nil {
						return err
					}
				}
				if rank == 1 {
					return want
				}
				return nil
			})
		}()
		select {
		case err := <-over:
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the ranks wait for each other (%v)", want)
		}
	}
}

// Claim: groups of the same ranks share one communicator, whatever their names; calls of
// both are right, and the log says how many there are and that they took memory.
func TestNCCLOneCommunicatorForTheSameRanks(t *testing.T) {
	lists := map[string][]int{"tp": {0, 1, 2}, "world": {0, 1, 2}, "tp-pp": {0, 1, 2}, "turned": {2, 1, 0}}
	err := ranks(t, 3, time.Minute, func(over *World, d *device.Device, rank int, _ *fake.GPU) error {
		for _, name := range []string{"tp", "world", "tp-pp", "turned", "tp"} {
			g, err := over.Group(rank, name, lists[name], d)
			if err != nil {
				return err
			}
			if err := commtest.ByFormula(g, device.F32, 5); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if n, note := len(over.all()), over.note(); n != 2 || over.kept < 2*fake.Memory || !strings.Contains(note, "2 communicators, which took ") {
			return fmt.Errorf("%d communicators in %d bytes: %s", n, over.kept, note)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Claim: a library that is missing, or too old, is one line that says what to do, and
// leaves nothing behind.
func TestNCCLMissing(t *testing.T) {
	left := t.TempDir()
	t.Setenv("TMPDIR", left)
	t.Setenv("MONOTRON_NCCL", "/no/such/libnccl.so.2")
	if _, err := nccl.Open(); err == nil || !strings.Contains(err.Error(), "NCCL cannot be used: /no/such/libnccl.so.2") || strings.Contains(err.Error(), "\n") {
		t.Errorf("missing: %v", err)
	}
	lib, err := library()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("MONOTRON_NCCL", lib.Path)
	t.Setenv("STANDIN_VERSION", "21304")
	if _, err := nccl.Open(); err == nil || !strings.Contains(err.Error(), "is version 2.13.4; 2.14 or newer is needed") {
		t.Errorf("old: %v", err)
	}
	if found, err := os.ReadDir(left); err != nil || len(found) > 0 {
		t.Errorf("left behind: %v (%v)", found, err)
	}
}

// Claim (comm.Tree): sums over NCCL whose order matters are those of the host's transport, of any number
// of ranks and elements, all under way at once; and the host continues.
func TestNCCLTree(t *testing.T) {
	uneven := func(rank int, i int64) float64 { // whose sums depend on their order
		return math.Ldexp(commtest.Element(rank, i)+9, (7*rank+int(i))%40)
	}
	elements := func(rank int, n int64) device.Tensor {
		v := make([]float64, n)
		for i := range v {
			v[i] = uneven(rank, int64(i))
		}
		return commtest.Heap(device.F32, v)
	}
	for ranks := 2; ranks <= 5; ranks++ {
		want := func(i int64) float64 {
			parts := make([]float32, ranks)
			for r := range parts {
				parts[r] = float32(uneven(r, i))
			}
			return float64(inTree(parts))
		}
		for _, n := range []int64{0, 1, 3, 5, 1000} {
			err := gpus(t, ranks, time.Minute, func(g *comm.Group, gpu *fake.GPU) error {
				gpu.Waits = false
				size, me := int64(g.Size()), int64(g.Rank())
				all, long, rows := elements(g.Rank(), n), elements(g.Rank(), n*size), elements(g.Rank(), n*size)
				own, part := rows.Slice(0, me*n, n), commtest.Heap(device.F32, make([]float64, n))
				works := []comm.Work{g.AllReduce(all, comm.Tree), g.ReduceScatterTree(part, long), g.ReduceScatterTree(own, rows)}
				for _, w := range works {
					if err := errors.Join(w.Wait(), w.Wait()); err != nil {
						return err
					}
				}
				if err := gpu.Sync(); err != nil {
					return err
				}
				scattered := func(i int64) float64 { return want(me*n + i) }
				return errors.Join(commtest.Holds("all_reduce", all, want), commtest.Holds("reduce_scatter", part, scattered), commtest.Holds("reduce_scatter in place", own, scattered),
					commtest.Holds("what was only sent", long, func(i int64) float64 { return float64(float32(uneven(g.Rank(), i))) }))
			})
			if err != nil {
				t.Errorf("%d ranks, %d elements: %v", ranks, n, err)
			}
		}
	}
}

// inTree adds numbers as comm.Tree says.
func inTree(v []float32) float32 {
	for ; len(v) > 1; v = v[:(len(v)+1)/2] {
		for i := range len(v) / 2 {
			v[i] = v[2*i] + v[2*i+1]
		}
		if len(v)%2 == 1 {
			v[len(v)/2] = v[len(v)-1]
		}
	}
	return v[0]
}

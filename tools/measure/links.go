package measure

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"monotron/csrc/device"
	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/internal/osadvice"
	"monotron/internal/parallelio"
	"monotron/megatron/plan"
	"monotron/mpu/comm"
	"monotron/mpu/comm/inproc"
	"monotron/tools/internal/timing"
)

// round keeps four digits: more are noise.
func round(x float64) float64 {
	r, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'e', 3, 64), 64)
	return r
}

// timed are the collectives that training uses.
var timed = []struct {
	op comm.Op
	by func(g *comm.Group, part, full device.Tensor) comm.Work
}{
	{comm.AllReduce, func(g *comm.Group, part, _ device.Tensor) comm.Work { return g.AllReduce(part, comm.Sum) }},
	{comm.AllGather, func(g *comm.Group, part, full device.Tensor) comm.Work { return g.AllGather(full, part) }},
	{comm.ReduceScatter, func(g *comm.Group, part, full device.Tensor) comm.Work { return g.ReduceScatter(part, full) }},
	{comm.Broadcast, func(g *comm.Group, part, _ device.Tensor) comm.Work { return g.Broadcast(part, 0) }},
	{comm.Exchange, func(g *comm.Group, part, full device.Tensor) comm.Work { // around a ring, as stages do
		n, at := g.Size(), g.Rank()
		return g.Exchange([]comm.Transfer{{Peer: (at + 1) % n, Send: true, T: part}, {Peer: (at + n - 1) % n, T: full.Slice(0, 0, part.Len())}})
	}},
}

// collectives times each among so many goroutines, of one group and of several at once.
func (s *survey) collectives(n int) error {
	crowded := max(2, (2*s.machine.Threads+n-1)/n)
	for _, groups := range []int{1, crowded} {
		for _, dtype := range []device.DType{device.F32, device.BF16} {
			for _, way := range timed {
				if way.op == comm.Exchange && n > 2 {
					continue
				}
				row := plan.CollectiveTimes{Op: way.op.String(), DType: dtype.String(), Ranks: n, Groups: groups}
				for _, bytes := range s.effort.bytes {
					if bytes*float64(n*n*groups) > 1<<31 {
						break // memory, and a time that grows with the size by then
					}
					took, err := s.rounds(groups, n, dtype, int64(bytes), way.by)
					if err != nil {
						return err
					}
					row.Times = append(row.Times, []float64{bytes, round(took)})
				}
				s.machine.Collectives = append(s.machine.Collectives, row)
			}
		}
	}
	return nil
}

// rounds is the seconds of one collective in each of `groups` groups of n goroutines.
func (s *survey) rounds(groups, n int, dtype device.DType, bytes int64, by func(g *comm.Group, part, full device.Tensor) comm.Work) (float64, error) {
	w := inproc.NewWorld(groups * n)
	took := make([]float64, groups)
	err := w.Run(func(rank int) error {
		d, err := s.open()
		if err != nil {
			return err
		}
		defer d.Close()
		// Ranks are grouped in order: neighbours in one group.
		members := make([]int, n)
		for i := range members {
			members[i] = rank/n*n + i
		}
		g, err := w.Group(rank, fmt.Sprint("measured ", rank/n), members, d)
		if err != nil {
			return err
		}
		part, all := d.Arena.Zeroed(device.Communication, dtype, bytes/dtype.Size()), d.Arena.Zeroed(device.Communication, dtype, int64(n)*bytes/dtype.Size())
		// Twice: a few calls to see how long one takes, then as many as the time allows.
		count := 3 // to see how many are worth a clock
		for range 2 {
			if err := g.Barrier(); err != nil {
				return err
			}
			start := time.Now()
			for range count {
				if err := by(g, part, all).Wait(); err != nil {
					return err
				}
			}
			each := time.Since(start).Seconds() / float64(count)
			if g.Rank() == 0 {
				took[rank/n] = each
			}
			if count, err = agreed(g, d, max(3, min(10000, int(s.effort.collective.Seconds()/each)))); err != nil {
				return err
			}
		}
		return nil
	})
	return slices.Max(took), err
}

// agreed is rank 0's number.
func agreed(g *comm.Group, d *device.Device, n int) (int, error) {
	t := d.Arena.Zeroed(device.Communication, device.I32, 1)
	device.WriteSlice(d, t, []int32{int32(n)})
	err := g.Broadcast(t, 0).Wait()
	return int(device.ReadSlice[int32](d, t)[0]), err
}

// processes are all-reduces among processes over shared memory, and the link that they show.
func (s *survey) processes() error {
	w := timing.Way{Name: "shared memory, monotron's sum", Transport: "shm"}
	for _, n := range []int{2, 4} {
		times, err := w.Time(s.context.Context, s.context.String("device"), n)
		if err != nil {
			return err
		}
		row := plan.CollectiveTimes{Op: comm.AllReduce.String(), DType: "f32", Ranks: n, Groups: 1, Processes: true}
		for i := len(times) - 1; i >= 0; i-- {
			row.Times = append(row.Times, []float64{timing.Bytes[i], round(times[i])})
		}
		s.machine.Collectives = append(s.machine.Collectives, row)
		if n == 2 {
			// A ring of two sends its tensor once.
			s.machine.Node = plan.Link{Latency: round(times[1] / 2), Rate: round(timing.Bytes[0] / times[0])}
		}
	}
	return nil
}

// disk writes a file where the machine file will be, and reads it back.
func (s *survey) disk() error {
	made, err := atomicfile.Create(filepath.Join(s.folder, "measured"), 0o666)
	if err != nil {
		return err
	}
	defer made.Abort() // nothing of it is wanted
	f := made.File
	// Values that no file system compresses away.
	block := make([]byte, 4<<20)
	for i := range block {
		block[i] = byte(i * 7 >> 3)
	}
	// Writing counts until the bytes are on the disk.
	start := time.Now()
	if err := parallelio.Fill(f, func(to *parallelio.File) error {
		for range s.effort.disk / int64(len(block)) {
			if _, err := to.Write(block); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	if err := f.Sync(); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	s.machine.Disk.Write = round(float64(s.effort.disk) / time.Since(start).Seconds())
	// Reading, after the page cache has dropped them.
	osadvice.Forget(f)
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	start = time.Now()
	if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, block); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	s.machine.Disk.Read = round(float64(s.effort.disk) / time.Since(start).Seconds())
	return nil
}

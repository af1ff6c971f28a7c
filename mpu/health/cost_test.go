package health

import (
	"syscall"
	"testing"

	"monotron/mpu/comm"
)

// instant is an engine whose collectives cost nothing.
type instant struct{}

func (instant) Start(*comm.Collective) comm.Work { return comm.Finished(nil) }

func costing(b *testing.B) (*Recorder, *comm.Group) {
	r, err := NewRecorder(0, 4, b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	return r, r.Wrap(comm.NewGroup(comm.Membership{Name: "tp", Members: []int{0, 1, 2, 3}}, instant{}), false)
}

// spent reports the processor time of an operation, which does not depend on what else
// the machine does.
func spent(b *testing.B, loop func()) {
	now := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	start := now()
	loop()
	b.ReportMetric(float64(now()-start)/float64(b.N), "cpu-ns/op")
}

// BenchmarkCall is what the record adds to one collective.
func BenchmarkCall(b *testing.B) {
	_, g := costing(b)
	x := numbers(8)
	spent(b, func() {
		for b.Loop() {
			_ = g.AllReduce(x, comm.Sum).Wait()
		}
	})
}

// BenchmarkPhase is what a change of phase costs.
func BenchmarkPhase(b *testing.B) {
	r, _ := costing(b)
	spent(b, func() {
		for b.Loop() {
			r.Enter(Forward, 1)
		}
	})
}

// BenchmarkHear is what a rank's beat costs rank 0, once a second and rank: of one that computes, and of one that
// waits in a collective.
func BenchmarkHear(b *testing.B) {
	for name, m := range map[string][]byte{"computes": loadMessage(5, 1024, false, false, false), "waits": loadMessage(5, 1024, true, false, false)} {
		b.Run(name, func(b *testing.B) {
			w := newWatcher(1024, Settings{}, nil, nil)
			b.ReportMetric(float64(len(m)), "bytes")
			spent(b, func() {
				for b.Loop() {
					w.Hear(5, m)
				}
			})
		})
	}
}

// BenchmarkBeat is what a rank's beat costs both ends, once a second.
func BenchmarkBeat(b *testing.B) {
	r, g := costing(b)
	_ = g.AllReduce(numbers(8), comm.Sum).Wait()
	w := newWatcher(1, Settings{}, nil, nil)
	spent(b, func() {
		for b.Loop() {
			w.hear(0, &message{Beat: r.Beat()})
		}
	})
}

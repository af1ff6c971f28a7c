package inject

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/system"
	"monotron/mpu/comm"
	"monotron/mpu/health"
)

// Injector does to one rank what --inject asks for. A nil Injector does nothing.
type Injector struct {
	faults []Fault // of this rank
	done   []bool
	shared bool        // the rank is a goroutine: it must not end the process
	over   func() bool // the run is at its end: a sleeper wakes up
	armed  *Fault      // mismatch: at the next collective
}

// Ended is the panic that ends a rank which shares its process with others.
type Ended struct {
	Err   error
	phase health.Phase
	step  int64
}

// At is what the rank was at.
func (e *Ended) At() (health.Phase, int64) { return e.phase, e.step }

// On prepares the faults of a recorder's rank; nil: there are none. It is to be
// called before the recorder wraps groups. over reports whether the run has ended.
func On(r *health.Recorder, faults []Fault, shared bool, over func() bool) *Injector {
	if r == nil {
		return nil
	}
	i := &Injector{shared: shared, over: over}
	for _, f := range faults {
		if f.Rank == r.Rank() {
			i.faults = append(i.faults, f)
		}
	}
	if len(i.faults) == 0 {
		return nil
	}
	i.done = make([]bool, len(i.faults))
	r.Troubled(i.enter)
	r.Meddled(i.meddle)
	return i
}

// enter does what is due when the rank enters a phase.
func (i *Injector) enter(p health.Phase, step int64) {
	for n := range i.faults {
		f := &i.faults[n]
		if i.done[n] || f.Phase != p || (f.Step != 0 && f.Step != step) {
			continue
		}
		i.done[n] = f.Kind != Sleep || f.Step != 0
		switch f.Kind {
		case Kill:
			i.end(p, step, 137, "was killed by --inject", func() { _ = system.SignalSelf(syscall.SIGKILL); select {} })
		case Exit:
			i.end(p, step, f.Code, fmt.Sprintf("left with exit code %d by --inject", f.Code), func() { os.Exit(f.Code) })
		case Stop:
			if !i.shared {
				_ = system.Suspend() // it sleeps, too, where nobody lets it continue
			}
			i.sleep(f.Seconds)
		case Sleep:
			i.sleep(f.Seconds)
		case Mismatch:
			i.armed = f
		default:
			i.done[n] = false // others ask for it
		}
	}
}

// end ends the rank's process, or the rank alone where others live in it.
func (i *Injector) end(p health.Phase, step int64, code int, what string, process func()) {
	if !i.shared {
		process()
	}
	panic(&Ended{exitcode.With(exitcode.Code(code), errors.New(what)), p, step})
}

func (i *Injector) sleep(seconds float64) {
	for end := time.Now().Add(time.Duration(seconds * float64(time.Second))); time.Now().Before(end); {
		if i.shared && i.over() {
			return
		}
		time.Sleep(min(time.Until(end), 50*time.Millisecond))
	}
}

// meddling is an engine before one: what the rank calls next goes wrong.
type meddling struct {
	*Injector
	engine comm.Engine
}

func (i *Injector) meddle(e comm.Engine) comm.Engine { return meddling{i, e} }

// Start begins late where that is asked for, and another collective than the rank
// meant where a mismatch is due.
func (m meddling) Start(c *comm.Collective) comm.Work {
	for n := range m.faults {
		if m.faults[n].Kind == Slow {
			m.sleep(m.faults[n].Seconds)
		}
	}
	f := m.armed
	if f == nil {
		return m.engine.Start(c)
	}
	m.armed = nil
	if f.What == "size" && c.InPlace() && c.In.Len() > 1 {
		return m.engine.Start(shorter(c))
	}
	m.extra()
	return m.engine.Start(c)
}

// extra makes one call more, here and nowhere else.
func (m meddling) extra() {
	one := new([1]int64)
	t := device.View(unsafe.Pointer(one), device.I64, 1)
	_ = m.engine.Start(&comm.Collective{Op: comm.AllReduce, Reduce: comm.Max, In: t, Out: t}).Wait() // the next call has the error
}

// shorter is a collective in place without the last element.
func shorter(c *comm.Collective) *comm.Collective {
	less := *c
	less.In = c.In.Reshape(c.In.Len()).Slice(0, 0, c.In.Len()-1)
	less.Out = less.In
	return &less
}

// Spoils reports whether a NaN is due in a step's forward pass as the residual stream
// leaves a layer (0: enters the first).
func (i *Injector) Spoils(step int64, layer int) bool {
	return i.find(NaN, step, func(f *Fault) bool { return f.Layer == layer }) != nil
}

// Corrupts reports whether the checkpoint of a step is to be damaged.
func (i *Injector) Corrupts(step int64) bool { return i.find(Corrupt, step, nil) != nil }

// Disk is what fails when the checkpoint of a step is written; nil: nothing.
func (i *Injector) Disk(step int64) func(op, path string) error {
	if i.find(FullDisk, step, nil) == nil {
		return nil
	}
	return func(op, path string) error {
		if op == "write" {
			return syscall.ENOSPC
		}
		return nil
	}
}

func (i *Injector) find(kind string, step int64, fits func(*Fault) bool) *Fault {
	if i == nil {
		return nil
	}
	for n := range i.faults {
		f := &i.faults[n]
		if f.Kind == kind && (f.Step == 0 || f.Step == step) && (fits == nil || fits(f)) {
			return f
		}
	}
	return nil
}

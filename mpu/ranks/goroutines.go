package ranks

import (
	"fmt"
	"time"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/mpu/comm"
	"monotron/mpu/comm/failure"
	"monotron/mpu/comm/inproc"
	"monotron/mpu/health"
	"monotron/mpu/health/inject"
	"monotron/mpu/topology"
)

// goroutines are ranks of one process, each with a device of its own while the work
// lasts, watched where recorders are given.
type goroutines struct {
	Config
	work func(*Rank) error

	recorders []*health.Recorder        // by rank; nil: nobody watches
	ends      func(rank int, err error) // is called as soon as a rank ends; may be nil

	main, saves *inproc.World
	devices     []*device.Device
}

// newGoroutines makes where the ranks of c meet.
func newGoroutines(c Config, work func(*Rank) error) *goroutines {
	n := c.Sizes.World()
	g := &goroutines{Config: c, work: work, main: inproc.NewWorld(n), saves: inproc.NewWorld(n), devices: make([]*device.Device, n)}
	g.main.Timeout = c.Timeout
	return g
}

func (g *goroutines) run() error {
	defer closeAll(g.devices) // not before every rank has ended: peers read each other's memory
	if g.Sizes.World() == 1 {
		err := g.rank(0)
		g.ended(0, err)
		return err
	}
	return g.main.Run(func(number int) error {
		err := g.rank(number)
		if err != nil {
			g.saves.Abort(err)
		}
		g.ended(number, err)
		return err
	})
}

func (g *goroutines) ended(rank int, err error) {
	if g.ends != nil {
		g.ends(rank, err)
	}
}

func closeAll(devices []*device.Device) {
	for _, d := range devices {
		if d != nil {
			d.Close()
		}
	}
}

// rank is one rank from its start to its end.
func (g *goroutines) rank(number int) (err error) {
	defer device.CatchOutOfMemory(&err)
	defer recoverEnded(number, &err)
	d, err := g.Open()
	if err != nil {
		return err
	}
	g.devices[number] = d
	var recorder *health.Recorder
	if g.recorders != nil {
		recorder = g.recorders[number]
	}
	recorder.Mine()
	recorder.On(d)
	injector := g.injector(recorder)
	r, err := g.join(number, d, recorder)
	if err != nil {
		return err
	}
	r.Inject = injector
	return g.work(r)
}

// injector must be made before the recorder wraps groups.
func (g *goroutines) injector(r *health.Recorder) *inject.Injector {
	if g.Watch == nil {
		return nil
	}
	return inject.On(r, g.Watch.Faults, true, func() bool { return g.main.Err() != nil })
}

// join makes the rank and its groups.
func (g *goroutines) join(number int, d *device.Device, recorder *health.Recorder) (*Rank, error) {
	if g.Sizes.World() == 1 {
		r := alone(g.Sizes, d)
		r.watch = recorder
		return r, nil
	}
	carrier := comm.ByHost(g.main, d)
	r := &Rank{Number: number, Sizes: g.Sizes, Coordinates: g.Sizes.At(number), Device: d, Carrier: carrier.Note(),
		Groups: map[topology.Kind]*comm.Group{}, carrier: carrier, watch: recorder}
	if err := r.Join(append([]topology.Kind{topology.All}, g.Kinds...)...); err != nil {
		return nil, err
	}
	return r, r.joinSaves(comm.ByHost(g.saves, d))
}

// recoverEnded turns the end that --inject has given a rank into its verdict.
func recoverEnded(rank int, err *error) {
	switch p := recover().(type) {
	case nil:
	case *inject.Ended:
		phase, step := p.At()
		*err = (&failure.Verdict{Kind: failure.Death, Rank: rank, Code: exitcode.CodeOf(p.Err), Phase: phase.String(), Step: step, Time: time.Now(),
			Text: fmt.Sprintf("rank %d %v in %s", rank, p.Err, health.At(phase, step))}).Err()
	default:
		panic(p)
	}
}

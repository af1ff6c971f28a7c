package training

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/spec"
	"monotron/mpu/comm"
	"monotron/mpu/comm/inject"
	"monotron/mpu/comm/watch"
	"monotron/mpu/topology"
	"monotron/notes"
)

// InProcess does work on every rank of a layout, each a goroutine with a device of
// its own while the work lasts, and returns the error of the rank that failed first.
func InProcess(l Layout, m *spec.Model, open func() (*device.Device, error), work func(*Rank) error) error {
	return (&goroutines{layout: l, model: m, open: open, work: work}).run()
}

// goroutines are ranks of one process, watched where recorders are given.
type goroutines struct {
	layout Layout
	model  *spec.Model
	open   func() (*device.Device, error)
	work   func(*Rank) error

	recorders []*watch.Recorder
	faults    []inject.Fault
	ends      func(rank int, err error) // is told as soon as a rank ends

	main, saves *comm.World
	devices     []*device.Device
}

func (g *goroutines) run() error {
	n := g.layout.Sizes().World()
	g.main, g.saves, g.devices = comm.NewWorld(n), comm.NewWorld(n), make([]*device.Device, n)
	defer closeAll(g.devices) // not before every rank has ended: peers read each other's memory
	if n == 1 {
		err := g.rank(0)
		if g.ends != nil {
			g.ends(0, err)
		}
		return err
	}
	g.main.Timeout = time.Duration(g.layout.TimeoutMinutes) * time.Minute
	return g.main.Run(func(number int) (err error) {
		defer func() {
			if err != nil {
				g.saves.Abort(err)
			}
			if g.ends != nil {
				g.ends(number, err)
			}
		}()
		return g.rank(number)
	})
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
	defer ended(number, &err)
	d, err := g.open()
	if err != nil {
		return err
	}
	g.devices[number] = d
	var rec *watch.Recorder
	if g.recorders != nil {
		rec = g.recorders[number]
	}
	rec.Mine()
	over := func() bool { return g.main.Err() != nil }
	injector := inject.On(rec, g.faults, true, over)
	r := Alone(d)
	if g.layout.Sizes().World() > 1 {
		carrier := comm.ByHost(g.main, d)
		if r, err = joinRank(carrier, number, g.layout, g.model, d, rec); err != nil {
			return err
		}
		r.Carrier = carrier.Note
		all := g.layout.Sizes().Group(topology.All, 0)
		if r.Saves, err = comm.ByHost(g.saves, d).Group(number, "saves", all, d); err != nil {
			return err
		}
		r.Saves = rec.Wrap(r.Saves, all, true)
	}
	r.watch, r.inject = rec, injector
	return g.work(r)
}

// ended turns the end that --inject has given a rank into its verdict.
func ended(rank int, err *error) {
	switch p := recover().(type) {
	case nil:
	case *inject.Ended:
		phase, step := p.At()
		*err = (&watch.Verdict{Kind: watch.Death, Rank: rank, Code: fault.CodeOf(p.Err), Phase: phase.String(), Step: step, Time: time.Now(),
			Text: fmt.Sprintf("rank %d %v in %s", rank, p.Err, watch.At(phase, step))}).Err()
	default:
		panic(p)
	}
}

// unwinding is how long a rank may take to end by itself once the run is lost.
const unwinding = 5 * time.Second

// leave ends this process where ranks are busy with something else than their peers
// after the run is lost: a run that has failed holds no machine. over: it has ended.
func leave(err error, over <-chan struct{}) {
	select {
	case <-over:
	case <-time.After(unwinding):
		notes.Stderr().Failure(err)
		os.Exit(int(fault.CodeOf(err)))
	}
}

// Ranks does work on this process's ranks: all of the layout's, or, with a process,
// the one that it is. They are watched; the error is the run's verdict.
func (j *Job) Ranks(p *comm.Process, open func() (*device.Device, error), work func(*Rank) error) error {
	if p == nil {
		return j.goroutines(open, work)
	}
	return j.process(p, open, work)
}

// goroutines runs all ranks here.
func (j *Job) goroutines(open func() (*device.Device, error), work func(*Rank) error) (err error) {
	n := j.Config.Layout.Sizes().World()
	if err := freshFolder(&j.Config.Watch); err != nil {
		return err
	}
	g := &goroutines{layout: j.Config.Layout, model: &j.Config.Model, open: open, work: work, faults: j.faults}
	for rank := range n {
		rec, err := watch.NewRecorder(rank, n, j.Config.Watch.Folder)
		if err != nil {
			return err
		}
		defer rec.Close() // the file is whole without it
		g.recorders = append(g.recorders, rec)
	}
	over := make(chan struct{})
	var beaters []*watch.Beater
	watcher := watch.NewWatcher(n, j.watching(), func(rank int) { beaters[rank].Answer() }, func(v *watch.Verdict) {
		g.main.Abort(v.Err())
		g.saves.Abort(v.Err())
		go leave(v.Err(), over)
	})
	defer watcher.Close()
	for _, rec := range g.recorders {
		beaters = append(beaters, watch.Straight(rec, watcher))
	}
	g.ends = func(rank int, err error) { beaters[rank].Close(err) }
	err = g.run()
	close(over)
	if err == nil { // a rank alone has no peers that tell it
		err = watcher.Judged()
	}
	return j.conclude(watcher, err)
}

// conclude makes the verdict of a run that has ended with an error, and keeps it.
func (j *Job) conclude(w *watch.Watcher, err error) error {
	if err == nil || fault.CodeOf(err) == fault.Again {
		return err
	}
	v := w.Verdict(err)
	if folder := j.Config.Watch.Folder; folder != "" {
		if failed := v.Write(folder); failed != nil {
			j.console.note("%v", failed)
		}
	}
	if v.Text == err.Error() {
		return err
	}
	return v.Err()
}

// watching is what the watcher is told.
func (j *Job) watching() watch.Settings {
	c := &j.Config.Watch
	s := watch.Settings{Limit: time.Duration(c.StallSeconds) * time.Second, Every: int64(max(1, j.Config.Log.Interval))}
	if c.Stragglers {
		s.Remark = func(line string) { j.console.note("%s", line) }
	}
	return s
}

// process runs the one rank that this process is.
func (j *Job) process(p *comm.Process, open func() (*device.Device, error), work func(*Rank) error) error {
	w := &watched{job: j, process: p, over: make(chan struct{})}
	go w.lost()
	err := w.run(open, work)
	close(w.over)
	if fault.CodeOf(err) == fault.Again { // all ranks have agreed to stop
		w.last(nil)
		return errors.Join(err, p.End(nil))
	}
	if err != nil {
		w.farewell(err)
	}
	if final := p.End(err); !isVerdict(err) {
		err = final
	}
	return w.last(err)
}

// watched is a rank that is a process.
type watched struct {
	job      *Job
	process  *comm.Process
	recorder *watch.Recorder
	over     chan struct{} // the rank's work is

	mu     sync.Mutex
	beater *watch.Beater
	server *watch.Server // on rank 0
	final  error
	ended  bool
}

func (w *watched) run(open func() (*device.Device, error), work func(*Rank) error) (err error) {
	defer device.CatchOutOfMemory(&err)
	p, c := w.process, &w.job.Config
	if n := c.Layout.Sizes().World(); n != p.Size() {
		return fault.Errorf(fault.Usage, "the layout has %d ranks, the launcher started %d", n, p.Size())
	}
	d, err := open()
	if err != nil {
		return err
	}
	addr, err := w.listen(d)
	if err != nil {
		return err
	}
	if w.recorder, err = watch.NewRecorder(p.Rank(), p.Size(), c.Watch.Folder); err != nil {
		return err
	}
	w.recorder.Mine()
	w.beat(addr)
	injector := inject.On(w.recorder, w.job.faults, false, func() bool { return false })
	all := c.Layout.Sizes().Group(topology.All, 0)
	carrier, err := comm.Carry(p, p.Rank(), all, d, c.Layout.Backend != "gloo", time.Duration(c.Layout.TimeoutMinutes)*time.Minute)
	if err != nil {
		return err
	}
	defer func() {
		failed := err
		if fault.CodeOf(err) == fault.Again { // all ranks end alike
			failed = nil
		}
		if ended := carrier.End(failed); err == nil {
			err = ended
		}
	}()
	r, err := joinRank(carrier, p.Rank(), c.Layout, &c.Model, d, w.recorder)
	if err != nil {
		return err
	}
	r.Carrier = carrier.Note
	if r.Saves, err = comm.ByHost(p, d).Group(r.Number, "saves", all, d); err != nil {
		return err
	}
	r.Saves = w.recorder.Wrap(r.Saves, all, true)
	r.RunName, r.tell, r.inject = p.Run(), p.Phase, injector
	return work(r)
}

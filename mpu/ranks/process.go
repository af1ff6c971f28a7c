package ranks

import (
	"errors"
	"slices"
	"sync"
	"time"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/mpu/bootstrap/rendezvous"
	"monotron/mpu/comm"
	"monotron/mpu/comm/nccl"
	"monotron/mpu/comm/process"
	"monotron/mpu/health"
	"monotron/mpu/health/inject"
	"monotron/mpu/topology"
)

// member is the rank that this process is, of a run of processes.
type member struct {
	Config
	work     func(*Rank) error
	process  *process.World
	recorder *health.Recorder

	mu      sync.Mutex // of all below
	beater  *health.Beater
	watcher *health.Watcher // on rank 0
	final   error
	ended   bool
}

// runProcess is how the run ends: as this rank's work does, or, where the rank does not
// notice that the run is lost, as that.
func runProcess(c Config, work func(*Rank) error) error {
	if c.Watch == nil {
		c.Watch = &Watch{Note: func(string, ...any) {}}
	}
	p := &member{Config: c, work: work, process: c.Process}
	over, left := make(chan error, 1), make(chan error, 1)
	worked := make(chan struct{})
	go p.lost(worked, left)
	go func() {
		err := p.run()
		close(worked)
		over <- p.conclude(err)
	}()
	select {
	case err := <-over:
		return err
	case err := <-left:
		return err
	}
}

// lost says how the run ends when it is lost before the rank's work is over, and leaves
// the rank behind when that has not ended for as long as it may take.
func (p *member) lost(worked <-chan struct{}, left chan<- error) {
	select {
	case <-p.process.Lost():
	case <-worked:
		return
	}
	patience := time.After(unwinding)
	err := p.last(p.process.Verdict())
	<-patience
	left <- err
}

// conclude reports to the other ranks how this one has ended, and hears how the run has.
func (p *member) conclude(err error) error {
	if exitcode.CodeOf(err) == exitcode.Again { // all ranks have agreed to stop
		_ = p.last(nil) // nobody has failed
		return errors.Join(err, p.process.End(nil))
	}
	if err != nil {
		p.farewell(err)
	}
	if final := p.process.End(err); !isVerdict(err) {
		err = final
	}
	return p.last(err)
}

// run is the rank from its start to its end.
func (p *member) run() (err error) {
	defer device.CatchOutOfMemory(&err)
	if n := p.Sizes.World(); n != p.process.Size() {
		return exitcode.Errorf(exitcode.Usage, "the layout has %d ranks, but the launcher started %d", n, p.process.Size())
	}
	// The device, and who watches the rank: recorder, heartbeats, injected faults.
	d, err := p.Open()
	if err != nil {
		return err
	}
	if err := p.listen(d); err != nil {
		return err
	}
	if p.recorder, err = health.NewRecorder(p.process.Rank(), p.process.Size(), p.Watch.Folder); err != nil {
		return err
	}
	p.recorder.Mine()
	p.recorder.On(d)
	p.beat()
	injector := inject.On(p.recorder, p.Watch.Faults, false, func() bool { return false })
	// NCCL's settings stand before it is loaded.
	if p.Pinned {
		if err := nccl.Pin(); err != nil {
			return err
		}
	}
	if p.NCCL && p.severalHosts() {
		if err := nccl.Lead(p.process.Members()[p.process.Rank()].Addr); err != nil {
			return err
		}
	}
	// What carries collectives; it ends after the rank's work, and says whether that was complete.
	carrier, err := nccl.Carry(p.process, p.process.Rank(), p.all(), d, p.NCCL, p.Timeout)
	if err != nil {
		return err
	}
	defer func() {
		if ended := carrier.End(unlessAgain(err)); err == nil {
			err = ended
		}
	}()
	// The rank's groups, then its work.
	r, err := p.join(carrier, d)
	if err != nil {
		return err
	}
	r.Inject = injector
	return p.work(r)
}

// unlessAgain is why the rank has failed; where all ranks stop alike, none has.
func unlessAgain(err error) error {
	if exitcode.CodeOf(err) == exitcode.Again {
		return nil
	}
	return err
}

// join makes the rank and its groups.
func (p *member) join(carrier comm.Carrier, d *device.Device) (*Rank, error) {
	number := p.process.Rank()
	r := &Rank{Number: number, Sizes: p.Sizes, Coordinates: p.Sizes.At(number), Device: d, RunName: p.process.Run(),
		Groups: map[topology.Kind]*comm.Group{}, carrier: carrier, watch: p.recorder}
	if err := r.Join(append([]topology.Kind{topology.All}, p.Kinds...)...); err != nil {
		return nil, err
	}
	r.Carrier = carrier.Note()
	return r, r.joinSaves(comm.ByHost(p.process, d))
}

// severalHosts reports whether the ranks are on more than one.
func (p *member) severalHosts() bool {
	members := p.process.Members()
	return slices.ContainsFunc(members, func(m rendezvous.Member) bool { return m.Host != members[0].Host })
}

// all are the numbers of all ranks.
func (p *member) all() []int { return p.Sizes.Group(topology.All, 0) }

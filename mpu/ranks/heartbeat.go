package ranks

import (
	"errors"

	"monotron/csrc/device"
	"monotron/mpu/comm"
	"monotron/mpu/comm/failure"
	"monotron/mpu/health"
)

// listen has rank 0 clear the run's folder and hear all ranks; the others wait for that.
func (p *member) listen(d *device.Device) error {
	if p.process.Rank() == 0 {
		if err := p.serve(); err != nil {
			return err
		}
	}
	all, err := comm.ByHost(p.process, d).Group(p.process.Rank(), "watch", p.all(), d)
	if err != nil {
		return err
	}
	return all.Barrier()
}

// serve starts the watcher of all ranks.
func (p *member) serve() error {
	if err := p.Watch.fresh(); err != nil {
		return err
	}
	session := p.process.Session()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watcher = health.NewWatcher(p.process.Size(), p.Watch.Settings, session.Ask, p.process.Judge)
	session.Hear(p.watcher.Hear)
	return nil
}

func (p *member) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beater = health.Over(p.recorder, p.process.Session())
}

// farewell reports to the watcher why the rank fails, before anybody else hears of it.
func (p *member) farewell(err error) {
	p.mu.Lock()
	beater := p.beater
	p.mu.Unlock()
	if beater != nil {
		beater.Close(err)
	}
}

// last says how the rank ends; rank 0 then knows the run's verdict, and keeps it. The
// first that comes here counts: the rank's work, or the run's loss.
func (p *member) last(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return p.final
	}
	p.ended, p.final = true, err
	if p.beater != nil {
		p.beater.Close(err)
	}
	if p.watcher != nil {
		p.final = p.Watch.conclude(p.watcher, err)
		p.watcher.Close()
	}
	return p.final
}

// isVerdict reports whether an error names its rank itself.
func isVerdict(err error) bool {
	var v *failure.Verdict
	return errors.As(err, &v)
}

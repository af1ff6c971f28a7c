package ranks

import (
	"errors"
	"net"
	"strconv"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/mpu/comm"
	"monotron/mpu/comm/watch"
)

// listen opens rank 0's port for heartbeats and tells all ranks where it is. Before
// that, rank 0 clears the run's folder.
func (p *process) listen(d *device.Device) (addr string, err error) {
	port := d.Arena.Zeroed(device.Workspace, device.I64, 1)
	defer d.Arena.Free(port)
	if p.process.Rank() == 0 {
		if err := p.serve(); err != nil {
			return "", err
		}
		device.WriteSlice(d, port, []int64{int64(p.server.Port())})
	}
	all, err := comm.ByHost(p.process, d).Group(p.process.Rank(), "watch", p.all(), d)
	if err != nil {
		return "", err
	}
	if err := all.Broadcast(port, 0).Wait(); err != nil {
		return "", err
	}
	host, _, err := net.SplitHostPort(p.process.Meeting())
	if err != nil {
		return "", fault.With(fault.Internal, err)
	}
	return net.JoinHostPort(host, strconv.FormatInt(device.ReadSlice[int64](d, port)[0], 10)), nil
}

// serve starts the watcher of all ranks.
func (p *process) serve() error {
	if err := p.Watch.fresh(); err != nil {
		return err
	}
	server, err := watch.Listen(p.process.Towards(), p.process.Key(), p.process.Size(), p.Watch.Settings,
		func(v *watch.Verdict) { p.process.Judge(v.Rank, v.Err()) })
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = server
	return nil
}

func (p *process) beat(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beater = watch.Dial(p.recorder, addr, p.process.Key())
}

// farewell tells the watcher why the rank fails, before anybody else hears of it.
func (p *process) farewell(err error) {
	p.mu.Lock()
	beater := p.beater
	p.mu.Unlock()
	if beater != nil {
		beater.Close(err)
	}
}

// last says how the rank ends; rank 0 then knows the run's verdict, and keeps it. The
// first that comes here counts: the rank's work, or the run's loss.
func (p *process) last(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return p.final
	}
	p.ended, p.final = true, err
	if p.beater != nil {
		p.beater.Close(err)
	}
	if p.server != nil {
		p.final = p.Watch.conclude(p.server.Watcher, err)
		p.server.Close()
	}
	return p.final
}

// isVerdict tells whether an error names its rank itself.
func isVerdict(err error) bool {
	var v *watch.Verdict
	return errors.As(err, &v)
}

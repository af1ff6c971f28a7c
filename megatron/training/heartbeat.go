package training

import (
	"errors"
	"net"
	"os"
	"strconv"
	"time"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/mpu/comm"
	"monotron/mpu/comm/watch"
	"monotron/mpu/topology"
	"monotron/notes"
)

// listen opens rank 0's port for heartbeats and tells all ranks where it is. Before
// that, rank 0 clears the run's folder.
func (w *watched) listen(d *device.Device) (addr string, err error) {
	p := w.process
	port := d.Arena.Zeroed(device.Workspace, device.I64, 1)
	defer d.Arena.Free(port)
	if p.Rank() == 0 {
		if err := freshFolder(&w.job.Config.Watch); err != nil {
			return "", err
		}
		server, err := watch.Listen(p.Towards(), p.Key(), p.Size(), w.job.watching(), func(v *watch.Verdict) { p.Judge(v.Rank, v.Err()) })
		if err != nil {
			return "", err
		}
		w.mu.Lock()
		w.server = server
		w.mu.Unlock()
		device.WriteSlice(d, port, []int64{int64(server.Port())})
	}
	all, err := comm.ByHost(p, d).Group(p.Rank(), "watch", w.job.Config.Layout.Sizes().Group(topology.All, 0), d)
	if err != nil {
		return "", err
	}
	if err := all.Broadcast(port, 0).Wait(); err != nil {
		return "", err
	}
	host, _, err := net.SplitHostPort(p.Meeting())
	if err != nil {
		return "", fault.With(fault.Internal, err)
	}
	return net.JoinHostPort(host, strconv.FormatInt(device.ReadSlice[int64](d, port)[0], 10)), nil
}

// freshFolder makes the run's folder, where one is asked for.
func freshFolder(c *Watch) error {
	if c.Folder == "" {
		return nil
	}
	return watch.Fresh(c.Folder)
}

func (w *watched) beat(addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beater = watch.Dial(w.recorder, addr, w.process.Key())
}

// lost ends this process when the run is lost and the rank does not notice.
func (w *watched) lost() {
	select {
	case <-w.process.Lost():
	case <-w.over:
		return
	}
	start := time.Now()
	err := w.last(w.process.Verdict())
	time.Sleep(time.Until(start.Add(unwinding)))
	notes.Stderr().Failure(err)
	os.Exit(int(fault.CodeOf(err)))
}

// farewell tells the watcher why the rank fails, before anybody else hears of it.
func (w *watched) farewell(err error) {
	w.mu.Lock()
	beater := w.beater
	w.mu.Unlock()
	if beater != nil {
		beater.Close(err)
	}
}

// last says how the rank ends; rank 0 then knows the run's verdict, and keeps it. The
// first that comes here counts: the rank's work, or the run's loss.
func (w *watched) last(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return w.final
	}
	w.ended, w.final = true, err
	if w.beater != nil {
		w.beater.Close(err)
	}
	if w.server != nil {
		w.final = w.job.conclude(w.server.Watcher, err)
		w.server.Close()
	}
	return w.final
}

// isVerdict tells whether an error names its rank itself.
func isVerdict(err error) bool {
	var v *watch.Verdict
	return errors.As(err, &v)
}

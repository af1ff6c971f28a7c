package training

import (
	"errors"
	"fmt"
	"time"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/spec"
	"monotron/mpu/comm"
	"monotron/mpu/topology"
)

// AsProcess does work as the one rank of a layout that this process is, and
// returns the error of the rank of the run that failed first.
func AsProcess(p *comm.Process, l Layout, m *spec.Model, open func() (*device.Device, error), work func(*Rank) error) error {
	err := asRank(p, l, m, open, work)
	if fault.CodeOf(err) == fault.Again { // all ranks have agreed to stop
		return errors.Join(err, p.End(nil))
	}
	return p.End(err)
}

func asRank(p *comm.Process, l Layout, m *spec.Model, open func() (*device.Device, error), work func(*Rank) error) error {
	if n := l.Sizes().World(); n != p.Size() {
		return fault.Errorf(fault.Usage, "the layout has %d ranks, the launcher started %d", n, p.Size())
	}
	d, err := open()
	if err != nil {
		return err
	}
	carrier := comm.Carry(p, d, l.Backend != "gloo", time.Duration(l.TimeoutMinutes)*time.Minute)
	r, err := Joined(carrier, p.Rank(), l, m, d)
	if err != nil {
		return errors.Join(err, carrier.End())
	}
	r.Carrier = carrier.Note
	if r.Saves, err = comm.Carry(p, d, false, 0).Group(r.Number, "saves", l.Sizes().Group(topology.All, 0), d); err != nil {
		return err
	}
	r.RunName, r.tell = p.Run(), p.Phase
	return errors.Join(work(r), carrier.End())
}

// at says what the rank is doing, for whoever has to say why it does no more.
func (r *Rank) at(format string, a ...any) {
	if r.tell != nil {
		r.tell(fmt.Sprintf(format, a...))
	}
}

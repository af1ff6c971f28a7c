package comm

import (
	"unsafe"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
)

// Staged gives groups for tensors that the host cannot touch, over groups for
// those it can: bytes are read from the device, carried, and written back. It is
// for GPUs without NCCL and for several ranks on one GPU; right, not fast.
type Staged struct{ Host Groups }

// Groups is where a rank's groups come from.
type Groups interface {
	Group(rank int, name string, members []int, d *device.Device) (*Group, error)
}

// Group is a group of the host's, for tensors of d.
func (s Staged) Group(rank int, name string, members []int, d *device.Device) (*Group, error) {
	g, err := s.Host.Group(rank, name, members, d)
	if err != nil || g.Size() == 1 {
		return g, err
	}
	return g.Over(func(host Engine) Engine { return staged{host, d} }), nil
}

type staged struct {
	host   Engine
	device *device.Device
}

// passage is a staged collective under way.
type passage struct {
	device *device.Device
	work   Work
	buffer unsafe.Pointer
	bytes  int64
	next   unsafe.Pointer // the rest of buffer that is not taken yet
	back   []twin         // written to the device by Wait
	over   bool
}

// twin is a tensor of the device and its copy in the host's memory.
type twin struct{ there, here device.Tensor }

// Start reads what goes, makes the call on the host's copies, and has Wait write
// what comes.
func (s staged) Start(c *Collective) Work {
	p := &passage{device: s.device}
	for _, t := range c.tensors() {
		p.bytes += aligned(t.Bytes())
	}
	p.bytes = max(p.bytes, 64)
	buffer, err := device.HostAlloc(p.bytes)
	if err != nil {
		return Finished(exitcode.Errorf(exitcode.Internal, "%d bytes of host memory for messages between ranks cannot be allocated: %w", p.bytes, err))
	}
	p.buffer, p.next = buffer, buffer
	p.work = s.host.Start(p.copied(c))
	return p
}

func aligned(bytes int64) int64 { return (bytes + 63) &^ 63 }

// copied is the collective on the host's copies. A tensor that it changes in place
// has one.
func (p *passage) copied(c *Collective) *Collective {
	here := *c
	here.In = p.goes(c.In)
	if c.InPlace() {
		here.Out = here.In
		p.back = append(p.back, twin{c.Out, here.Out})
	} else {
		here.Out = p.comes(c.Out)
	}
	here.Transfers = make([]Transfer, len(c.Transfers))
	for i, t := range c.Transfers {
		pass := p.comes
		if t.Send {
			pass = p.goes
		}
		here.Transfers[i] = Transfer{Peer: t.Peer, Send: t.Send, T: pass(t.T)}
	}
	return &here
}

// goes is a copy of data that the device has, comes one of data that it will have. A tensor
// that is not given stays so.
func (p *passage) goes(t device.Tensor) device.Tensor {
	here := p.take(t)
	if t.Given() {
		p.device.Read(unsafe.Slice((*byte)(here.Data), t.Bytes()), t)
	}
	return here
}

func (p *passage) comes(t device.Tensor) device.Tensor {
	here := p.take(t)
	if t.Given() {
		p.back = append(p.back, twin{t, here})
	}
	return here
}

func (p *passage) take(t device.Tensor) device.Tensor {
	if !t.Given() {
		return t
	}
	here := device.View(p.next, t.DType, t.Len())
	p.next = unsafe.Add(p.next, aligned(t.Bytes()))
	return here
}

// Wait waits on the host.
func (p *passage) Wait() error {
	if p.over {
		return nil
	}
	err := p.work.Wait()
	if err != nil {
		return err // peers may still be reading the buffer: it is left to them
	}
	for _, t := range p.back {
		p.device.Write(t.there, unsafe.Slice((*byte)(t.here.Data), t.there.Bytes()))
	}
	p.over = true
	device.HostFree(p.buffer, p.bytes)
	return p.device.Err()
}

package comm

import (
	"slices"
	"unsafe"

	"monotron/csrc/device"
	"monotron/fault"
)

// Staged gives groups for tensors that the host cannot touch, over groups for
// those it can: bytes are read from the device, carried, and written back. It is
// for GPUs without NCCL and for several ranks on one GPU; right, not fast.
type Staged struct{ Host Groups }

// Groups is where a rank's groups come from.
type Groups interface {
	Group(rank int, name string, members []int, d *device.Device) (Group, error)
}

// Group is a group of the host's, for tensors of d.
func (s Staged) Group(rank int, name string, members []int, d *device.Device) (Group, error) {
	g, err := s.Host.Group(rank, name, members, d)
	if err != nil || g.Size() == 1 {
		return g, err
	}
	return &staged{g, d}, nil
}

type staged struct {
	Group  // over the host
	device *device.Device
}

// passage is a staged collective under way.
type passage struct {
	device *device.Device
	work   Work
	room   unsafe.Pointer
	bytes  int64
	back   []twin // written to the device by Wait
	over   bool
}

// twin is a tensor of the device and its copy in the host's memory.
type twin struct{ there, here device.Tensor }

// pass reads what goes, makes the call on the host's copies, and has Wait write
// what comes. Tensors that are not given stay so.
func (s *staged) pass(goes, comes []device.Tensor, call func(goes, comes []device.Tensor) Work) Work {
	p := &passage{device: s.device}
	for _, t := range slices.Concat(goes, comes) {
		p.bytes += (t.Bytes() + 63) &^ 63
	}
	room, err := device.HostAlloc(max(p.bytes, 64))
	if err != nil {
		return finished{fault.Errorf(fault.Internal, "%d bytes of host memory on the way between ranks: %w", p.bytes, err)}
	}
	p.room, p.bytes = room, max(p.bytes, 64)
	next := room
	place := func(t device.Tensor) device.Tensor {
		if !t.Given() {
			return t
		}
		here := device.View(next, t.DType, t.Len())
		next = unsafe.Add(next, (t.Bytes()+63)&^63)
		return here
	}
	var in, out []device.Tensor
	for _, t := range goes {
		in = append(in, place(t))
	}
	for _, t := range comes {
		out = append(out, place(t))
	}
	p.read(in, goes)
	for i := range comes {
		p.back = append(p.back, twin{comes[i], out[i]})
	}
	p.work = call(in, out)
	return p
}

func (p *passage) read(here, there []device.Tensor) {
	for i, t := range there {
		if t.Given() {
			p.device.Read(unsafe.Slice((*byte)(here[i].Data), t.Bytes()), t)
		}
	}
}

// Wait waits on the host.
func (p *passage) Wait() error {
	if p.over {
		return nil
	}
	err := p.work.Wait()
	if err != nil {
		return err // peers may still be reading the room: it is left to them
	}
	for _, t := range p.back {
		if t.there.Given() {
			p.device.Write(t.there, unsafe.Slice((*byte)(t.here.Data), t.there.Bytes()))
		}
	}
	p.over = true
	device.HostFree(p.room, p.bytes)
	return p.device.Err()
}

// inPlace passes a tensor that the call changes.
func (s *staged) inPlace(t device.Tensor, call func(t device.Tensor) Work) Work {
	p, ok := s.pass([]device.Tensor{t}, nil, func(goes, _ []device.Tensor) Work { return call(goes[0]) }).(*passage)
	if !ok {
		return finished{fault.Errorf(fault.Internal, "no host memory for %v on its way between ranks", t)}
	}
	p.back = []twin{{t, device.View(p.room, t.DType, t.Len())}}
	return p
}

func (s *staged) AllReduce(t device.Tensor, op ReduceOp) Work {
	return s.inPlace(t, func(t device.Tensor) Work { return s.Group.AllReduce(t, op) })
}

func (s *staged) Reduce(t device.Tensor, op ReduceOp, root int) Work {
	return s.inPlace(t, func(t device.Tensor) Work { return s.Group.Reduce(t, op, root) })
}

func (s *staged) Broadcast(t device.Tensor, root int) Work {
	return s.inPlace(t, func(t device.Tensor) Work { return s.Group.Broadcast(t, root) })
}

func (s *staged) through(out, in device.Tensor, call func(out, in device.Tensor) Work) Work {
	return s.pass([]device.Tensor{in}, []device.Tensor{out}, func(goes, comes []device.Tensor) Work { return call(comes[0], goes[0]) })
}

func (s *staged) AllGather(out, in device.Tensor) Work { return s.through(out, in, s.Group.AllGather) }

func (s *staged) ReduceScatter(out, in device.Tensor) Work {
	return s.through(out, in, s.Group.ReduceScatter)
}

func (s *staged) Gather(out, in device.Tensor, root int) Work {
	return s.through(out, in, func(out, in device.Tensor) Work { return s.Group.Gather(out, in, root) })
}

func (s *staged) Scatter(out, in device.Tensor, root int) Work {
	return s.through(out, in, func(out, in device.Tensor) Work { return s.Group.Scatter(out, in, root) })
}

func (s *staged) AllToAllV(recv, send []device.Tensor) Work {
	return s.pass(send, recv, func(goes, comes []device.Tensor) Work { return s.Group.AllToAllV(comes, goes) })
}

func (s *staged) Exchange(transfers []Transfer) Work {
	var goes, comes []device.Tensor
	for _, t := range transfers {
		if t.Send {
			goes = append(goes, t.T)
		} else {
			comes = append(comes, t.T)
		}
	}
	return s.pass(goes, comes, func(goes, comes []device.Tensor) Work {
		here := make([]Transfer, len(transfers))
		for i, t := range transfers {
			from := &comes
			if t.Send {
				from = &goes
			}
			here[i] = Transfer{Peer: t.Peer, Send: t.Send, T: (*from)[0]}
			*from = (*from)[1:]
		}
		return s.Group.Exchange(here)
	})
}

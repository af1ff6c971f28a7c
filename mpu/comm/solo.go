package comm

import (
	"fmt"

	"monotron/csrc/device"
)

// Solo is the group of one rank: nothing to combine. It needs the rank's device
// for the collectives that copy.
type Solo struct {
	Label  string
	Device *device.Device
}

func (s Solo) Name() string                              { return s.Label }
func (s Solo) Rank() int                                 { return 0 }
func (s Solo) Size() int                                 { return 1 }
func (s Solo) AllReduce(device.Tensor, ReduceOp) Work    { return finished{} }
func (s Solo) Reduce(device.Tensor, ReduceOp, int) Work  { return finished{} }
func (s Solo) Broadcast(device.Tensor, int) Work         { return finished{} }
func (s Solo) AllGather(out, in device.Tensor) Work      { return s.copy(out, in) }
func (s Solo) Gather(out, in device.Tensor, _ int) Work  { return s.copy(out, in) }
func (s Solo) Scatter(out, in device.Tensor, _ int) Work { return s.copy(out, in) }
func (s Solo) ReduceScatter(out, in device.Tensor) Work  { return s.copy(out, in) }
func (s Solo) AllToAllV(recv, send []device.Tensor) Work { return s.copy(recv[0], send[0]) }
func (s Solo) Barrier() error                            { return nil }

// Exchange with oneself pairs the i-th send with the i-th receive.
func (s Solo) Exchange(transfers []Transfer) Work {
	var sends, receives []device.Tensor
	for _, t := range transfers {
		if t.Send {
			sends = append(sends, t.T)
		} else {
			receives = append(receives, t.T)
		}
	}
	if len(sends) != len(receives) {
		return finished{fmt.Errorf("group %s has one rank, and it sends itself %d messages but receives %d", s.Label, len(sends), len(receives))}
	}
	for i := range receives {
		s.copy(receives[i], sends[i])
	}
	return finished{}
}

func (s Solo) copy(out, in device.Tensor) Work {
	if out.Data != in.Data {
		s.Device.Copy(out, in)
	}
	return finished{}
}

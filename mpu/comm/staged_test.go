package comm

import (
	"testing"
	"unsafe"

	"monotron/csrc/device"
)

// apart is a device whose memory only it may touch, for all that comm knows.
type apart struct{ memory device.HostBackend }

func (apart) Describe() string                           { return "apart" }
func (a apart) Alloc(n int64) (unsafe.Pointer, error)    { return a.memory.Alloc(n) }
func (a apart) Free(p unsafe.Pointer, n int64)           { a.memory.Free(p, n) }
func (a apart) Write(dst unsafe.Pointer, b []byte) error { return a.memory.Write(dst, b) }
func (a apart) Read(b []byte, src unsafe.Pointer) error  { return a.memory.Read(b, src) }
func (apart) Sync() error                                { return nil }
func (apart) Close()                                     {}
func (apart) OnHost() bool                               { return false }
func (apart) Run(device.Op, unsafe.Pointer) error        { panic("comm: staged groups compute nothing") }

// Claim: groups whose bytes pass through the host give the formula's results too.
func TestStagedByFormula(t *testing.T) {
	for _, dtype := range []device.DType{device.F32, device.BF16, device.I64} {
		for ranks := 2; ranks <= 4; ranks++ {
			w := NewWorld(ranks)
			err := w.Run(func(rank int) error {
				d := device.New("apart", apart{})
				c, err := Carry(w, rank, ranksUpTo(ranks), d, true, 0)
				if err != nil {
					return err
				}
				if _, ok := c.Groups.(Staged); !ok {
					t.Errorf("a device apart, without streams, is carried by %T", c.Groups)
				}
				g, err := c.Group(rank, "all", ranksUpTo(ranks), d)
				if err != nil {
					return err
				}
				for _, n := range []int64{0, 1, 777} {
					if err := byFormula(g, dtype, n); err != nil {
						return err
					}
				}
				return exchanged(g)
			})
			if err != nil {
				t.Errorf("%s, %d ranks: %v", dtype, ranks, err)
			}
		}
	}
}

// exchanged sends two messages around the ring each way.
func exchanged(g *Group) error {
	n := g.Size()
	next, last := (g.Rank()+1)%n, (g.Rank()+n-1)%n
	x := heap(device.F32, make([]float64, 5))
	err := g.Exchange([]Transfer{{Peer: next, Send: true, T: heap(device.F32, elements(g.Rank(), 5))}, {Peer: last, T: x}}).Wait()
	if err != nil {
		return err
	}
	return holds("exchange", x, func(i int64) float64 { return element(last, i) })
}

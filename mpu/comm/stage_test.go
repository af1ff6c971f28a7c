package comm_test

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/mpu/comm"
	"monotron/mpu/comm/commtest"
	"monotron/mpu/comm/inproc"
	"monotron/mpu/comm/nccl"
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
	for _, dtype := range commtest.Reduced {
		for ranks := 2; ranks <= 4; ranks++ {
			w := inproc.NewWorld(ranks)
			err := w.Run(func(rank int) error {
				d := device.New("apart", apart{})
				c, err := nccl.Carry(w, rank, commtest.Ranks(ranks), d, true, 0)
				if err != nil {
					return err
				}
				if _, ok := c.Groups.(comm.Staged); !ok {
					t.Errorf("a device apart, without streams, is carried by %T", c.Groups)
				}
				g, err := c.Group(rank, "all", commtest.Ranks(ranks), d)
				if err != nil {
					return err
				}
				for _, n := range []int64{0, 1, 777} {
					if err := commtest.ByFormula(g, dtype, n); err != nil {
						return err
					}
				}
				return errors.Join(commtest.Exchanged(g), commtest.EveryDType(g))
			})
			if err != nil {
				t.Errorf("%s, %d ranks: %v", dtype, ranks, err)
			}
		}
	}
}

// Claim: everybody gets everybody's words, cut to what travels.
func TestWords(t *testing.T) {
	const travels = 255
	long := strings.Repeat("é", travels)
	w := inproc.NewWorld(3)
	err := w.Run(func(rank int) error {
		d := ref.Open()
		defer d.Arena.Close()
		g, err := w.Group(rank, "all", commtest.Ranks(3), d)
		if err != nil {
			return err
		}
		words, err := comm.Words(g, d, []string{"", "a\nb", long}[rank])
		if err == nil && (len(words) != 3 || words[0] != "" || words[1] != "a\nb" || words[2] != long[:travels-1]) {
			t.Errorf("rank %d has %q", rank, words)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

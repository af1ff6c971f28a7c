package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/mpu/bootstrap/rendezvous"
	"monotron/mpu/comm"
	"monotron/mpu/comm/process"
)

// onFour runs f as each of four ranks that talk as processes do.
func onFour(t *testing.T, f func(p *process.World) error) []error {
	t.Helper()
	addr, err := rendezvous.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 4)
	var all sync.WaitGroup
	for rank := range errs {
		all.Go(func() {
			p, err := process.Join(context.Background(), rendezvous.Config{Rank: rank, World: 4, Addr: addr, Secret: []byte("test"), Timeout: time.Minute}, time.Minute)
			if err == nil {
				err = p.End(f(p))
			}
			errs[rank] = err
		})
	}
	all.Wait()
	return errs
}

// Claim (docs/hosts.md): every group is summed on, checked and timed; rank 0 says
// so in one line that also names the way the bytes went.
func TestPreflightTimesEveryGroup(t *testing.T) {
	t.Setenv("MONOTRON_TRANSPORTS", "tcp")
	errs := onFour(t, func(p *process.World) error {
		d := ref.Open()
		defer d.Arena.Close()
		half := p.Rank() / 2 * 2
		world, err1 := p.Group(p.Rank(), "all", []int{0, 1, 2, 3}, d)
		tp, err2 := p.Group(p.Rank(), "tp", []int{half, half + 1}, d)
		alone, err3 := p.Group(p.Rank(), "pp", []int{p.Rank()}, d)
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		r, err := Run(p, d, world, []*comm.Group{tp, alone, world}, 1<<16)
		if err != nil || p.Rank() > 0 {
			return err
		}
		var said strings.Builder
		if err := r.Write(&said); err != nil {
			return err
		}
		if len(r.Groups) != 2 || r.Groups[0].Kind != "tp" || r.Groups[0].Ranks != 2 || r.Groups[1].Ranks != 4 || r.Groups[0].Slowest <= 0 || r.Hosts != 1 ||
			!strings.Contains(said.String(), "4 ranks on 1 host; rank 0: plain TCP to 3 ranks; slowest group of each kind: tp ") ||
			!strings.Contains(said.String(), ": 4 ranks (0 1 2 3) on ref: "+d.Describe()+"\n") {
			return fmt.Errorf("%+v: %s", r, said.String())
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// transport is an engine whose messages are counted and, at the rank that spoils them, come wrong.
type transport struct {
	comm.Engine
	sent, summed int64 // bytes
	spoils       bool
}

func (r *transport) Start(c *comm.Collective) comm.Work {
	if c.Op != comm.Exchange {
		if c.Op == comm.AllReduce && c.In.Len() > 1 { // of one element is a barrier
			r.summed += c.In.Bytes()
		}
		return r.Engine.Start(c)
	}
	for _, t := range c.Transfers {
		if t.Send {
			r.sent += t.T.Bytes()
		}
	}
	work := r.Engine.Start(c)
	if err := work.Wait(); err != nil || !r.spoils {
		return work
	}
	for _, t := range c.Transfers {
		if !t.Send {
			*(*float32)(t.T.Data) = 7
		}
	}
	return work
}

// Claim (docs/cuda.md): before step 1 every rank also sends to the next of each group, half of the elements
// that are summed; a message that comes wrong ends the run with its group and ranks.
func TestPreflightSendsMessages(t *testing.T) {
	t.Setenv("MONOTRON_TRANSPORTS", "tcp")
	const bytes = 1 << 16
	for _, spoils := range []bool{false, true} {
		errs := onFour(t, func(p *process.World) error {
			d := ref.Open()
			defer d.Arena.Close()
			world, err := p.Group(p.Rank(), "all", []int{0, 1, 2, 3}, d)
			if err != nil {
				return err
			}
			r := &transport{spoils: spoils && p.Rank() == 2}
			over := world.Over(func(e comm.Engine) comm.Engine {
				r.Engine = e
				return r
			})
			if _, err := Run(p, d, world, []*comm.Group{over}, bytes); err != nil {
				return err
			}
			if r.sent != bytes/2 || r.summed != 3*bytes {
				return fmt.Errorf("rank %d has sent %d bytes and summed %d", p.Rank(), r.sent, r.summed)
			}
			return nil
		})
		err := errors.Join(errs...)
		if !spoils && err != nil || spoils && (errs[2] == nil || !strings.Contains(errs[2].Error(), "group all: a message from rank 1 of the group contained 7 instead of 2")) {
			t.Errorf("spoilt: %v: %v", spoils, err)
		}
	}
}

// onGPU is a device with streams, which nothing is asked of here.
type onGPU struct{ device.HostBackend }

func (onGPU) Describe() string                    { return "a GPU" }
func (onGPU) Run(device.Op, unsafe.Pointer) error { return nil }
func (onGPU) Streams() device.Streams             { return streams{} }

type streams struct{ device.Streams }

// Claim (docs/cuda.md): between GPUs 8 MiB are tried, otherwise one.
func TestPreflightSize(t *testing.T) {
	gpu, cpu := device.New("cuda", onGPU{}), ref.Open()
	defer gpu.Arena.Close()
	defer cpu.Arena.Close()
	if on, off := Size(gpu), Size(cpu); on != 8<<20 || off != 1<<20 {
		t.Errorf("%d and %d bytes", on, off)
	}
}

// Claim (docs/hosts.md): each host is reported with its ranks, those of another device apart.
func TestPlacing(t *testing.T) {
	var members []rendezvous.Member
	devices := make([]byte, 5*deviceText)
	for rank, at := range [][2]string{{"alpha", "cpu: A"}, {"alpha", "cpu: A"}, {"alpha", "cuda: " + strings.Repeat("x", 200)}, {"beta", "cpu: A"}, {"alpha", "cpu: A"}} {
		members = append(members, rendezvous.Member{Rank: rank, Host: at[0]})
		copy(devices[rank*deviceText:(rank+1)*deviceText], at[1])
	}
	want := []string{"alpha: 3 ranks (0 1 4) on cpu: A", "alpha: 1 rank (2) on cuda: " + strings.Repeat("x", deviceText-len("cuda: ")), "beta: 1 rank (3) on cpu: A"}
	if got := placing(members, devices); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Claim (docs/hosts.md): a clock that is off, full shared memory and a slow group
// are each named with a cure.
func TestPreflightNotes(t *testing.T) {
	errs := onFour(t, func(p *process.World) error {
		if p.Rank() > 0 {
			return nil
		}
		var all []float64
		for rank := range 4 {
			p.Members()[rank].Host = fmt.Sprint("node", rank)
			all = append(all, 1e12, 1e10, 4e9, 3e9)
			switch rank {
			case 1:
				all[4*rank] += 5e6
			case 2:
				all[4*rank+1] = 1 << 20
			case 3:
				all[4*rank+3] = 1e8
			}
		}
		r := &Report{}
		d := ref.Open()
		defer d.Arena.Close()
		tp, err1 := p.Group(0, "tp", []int{0, 1}, d)
		dp, err2 := p.Group(0, "dp", []int{0, 2}, d)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		r.judge(p, all, []*comm.Group{tp, dp})
		for i, want := range []string{"the clock of node1 differs by 5s from that of node0", "/dev/shm of node2 has only 1 MiB free", "the dp group of rank 3 reduces 0.10 GB/s, but the fastest group reduces 3.00 GB/s"} {
			if len(r.Notes) != 3 || !strings.HasPrefix(r.Notes[i], want) {
				return fmt.Errorf("notes %q, want %q", r.Notes, want)
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

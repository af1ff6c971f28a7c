package layouts

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"monotron/csrc/cpu"
	"monotron/csrc/cuda"
	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/drawn"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/plan"
	"monotron/megatron/training"
	"monotron/mpu/ranks"
)

// Claim: what plan.Memory counts for a rank is what the rank's arena then holds at most,
// of each purpose and at once, to the byte, under the layouts that verify has. A draw of them here;
// tests/proofs/planner/memory.sh says by MONOTRON_PLAN_PROOF, DEVICE RANKS EVERY, which others.
func TestPlannedMemory(t *testing.T) {
	kinds := map[string]func() (*device.Device, error){"cpu": cpu.Open, "ref": func() (*device.Device, error) { return ref.Open(), nil }}
	if os.Getenv("MONOTRON_CUDA_LIBRARY") != "" { // of the emulator, or a GPU's
		kinds["cuda"] = func() (*device.Device, error) { return cuda.Open(0) }
	}
	chosen, world, proof := newSampler(1), 4, os.Getenv("MONOTRON_PLAN_PROOF")
	choose := chosen.choose
	if proof != "" {
		var only string
		from, every := 0, 1
		if _, err := fmt.Sscan(proof, &only, &world, &every); err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(kinds, func(name string, _ func() (*device.Device, error)) bool { return name != only })
		choose = func(all []Variant) (some []Variant) {
			for i := from % every; i < len(all); i += every {
				some = append(some, all[i])
			}
			from++ // not the same ones of each shape
			return some
		}
	} else if testing.Short() { // plain Go is slow
		choose = func(all []Variant) []Variant { return drawn.Some(t, all, 2) }
	} else {
		defer chosen.said(t)
	}
	shapes := Names()
	switch {
	case proof != "":
	case testing.Short():
		shapes = drawn.Some(t, shapes, len(shapes)/8)
	default:
		shapes = drawn.Part(t, shapes, len(shapes)/2)
	}
	for i, name := range slices.Sorted(maps.Keys(kinds)) {
		reference, err := kinds[name]()
		if err != nil && proof != "" {
			t.Fatalf("%s: %v", name, err) // a proof without its device would prove nothing
		} else if err != nil {
			t.Logf("%s: %v", name, err)
			continue
		}
		for k, shape := range shapes {
			// With memory the loss of preferences reads rows, which a dry run does not have.
			if shape == "dpo" {
				continue
			}
			for n, precision := range []string{"f32", "bf16"} {
				if proof == "" && ((i+k+n)%2 != 0 || name == "ref" && !testing.Short() && (k+int(chosen.seed))%4 != 0) {
					continue // each shape on each device in one of the precisions; on ref, which is slow, one in four
				}
				t.Run(name+"/"+shape+"/"+precision, func(t *testing.T) { plannedOfShape(t, shape, precision, world, choose, reference, kinds[name]) })
			}
		}
		reference.Close()
	}
}

// plannedOfShape: the layouts that choose takes of a shape's.
func plannedOfShape(t *testing.T, shape, precision string, world int, choose func([]Variant) []Variant, reference *device.Device, open func() (*device.Device, error)) {
	more := []string{"--log-memory"}
	if strings.HasPrefix(shape, "dora") { // whose dry run reads less, so that what is repeated to it are other values
		more = append(more, "--no-check-for-nan-in-loss-and-grad")
	}
	if precision != "f32" {
		more = append(more, "--"+precision)
	}
	m, err := Builtin(shape, more...)
	if err != nil {
		t.Fatal(err)
	}
	if shape == "mla" { // operands of products are copies then, wider ones in bf16
		m.Config.FP8 = config.FP8{Format: config.FP8Hybrid, Recipe: "tensorwise"}
	}
	if shape == "mtp" || shape == "mixtral" { // scales and histories are tables, also of experts
		m.Config.FP8 = config.FP8{Format: config.FP8Hybrid, Recipe: "delayed", Delayed: config.FP8Delayed{Length: 3}}
	}
	list := Legal(&m.Config, world)
	some := choose(list)
	for _, v := range some {
		if err := plannedLikeUsed(m, v, reference, open); err != nil {
			t.Errorf("%v: %v", v, err)
		}
	}
	t.Logf("%d of %d layouts", len(some), len(list))
}

// plannedLikeUsed rehearses one layout with memory and without.
func plannedLikeUsed(m Model, v Variant, reference *device.Device, open func() (*device.Device, error)) error {
	c, err := m.under(v)
	if err != nil {
		return err
	}
	job, err := training.Rehearsal(c, 0)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	used, heard := make([]device.Usage, c.Layout.Sizes().World()), make([]*hearing, c.Layout.Sizes().World())
	err = job.Ranks(nil, func() (*device.Device, error) {
		d, err := open()
		if err != nil {
			return nil, err
		}
		return d.Through(func(b device.Backend) device.Backend { return &hearing{Backend: b} }), nil
	}, func(r *ranks.Rank) error {
		_, err := job.Rehearse(r, 2, engine.Observer{})
		mu.Lock()
		defer mu.Unlock()
		used[r.Number] = r.Device.Arena.Usage()
		r.Device.Through(func(b device.Backend) device.Backend {
			heard[r.Number] = b.(*hearing)
			return b
		})
		return err
	})
	if err != nil {
		return err
	}
	planned, err := plan.Memory(c, plan.Options{Device: reference.Name, Real: reference, Full: c.Model.Experts != nil, Read: func(rank int, dst []byte) {
		heard[rank].repeat(dst)
	}})
	if err != nil {
		return err
	}
	for i, p := range planned {
		if p.Peak != used[i].Max || p.ByPurpose != used[i].Peak || p.Reserved != used[i].Reserved {
			return fmt.Errorf("rank %d was planned to hold %d bytes (%v, %d reserved, most in %v), and held %d (%v, %d reserved)",
				i, p.Peak, p.ByPurpose, p.Reserved, p.At, used[i].Max, used[i].Peak, used[i].Reserved)
		}
	}
	return nil
}

// hearing is a backend that keeps what the host reads: only counts decide about memory.
type hearing struct {
	device.Backend
	reads [][]byte
}

func (h *hearing) Read(dst []byte, src unsafe.Pointer) error {
	err := h.Backend.Read(dst, src)
	if !carried() {
		h.reads = append(h.reads, bytes.Clone(dst))
	}
	return err
}

// Streams are the backend's.
func (h *hearing) Streams() device.Streams {
	if b, ok := h.Backend.(interface{ Streams() device.Streams }); ok {
		return b.Streams()
	}
	return nil
}

// carried reports whether the reader is a collective that goes by way of the host (comm.Staged): one
// that is imagined reads nothing.
func carried() bool {
	var at [8]uintptr
	for frames := runtime.CallersFrames(at[:runtime.Callers(3, at[:])]); ; {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "comm.(*passage).goes") {
			return true
		}
		if !more {
			return false
		}
	}
}

func (h *hearing) repeat(dst []byte) {
	if len(h.reads) > 0 {
		copy(dst, h.reads[0])
		h.reads = h.reads[1:]
	}
}

// Claim: the same of tiled weights (--memory-centric-tiling), with files and without.
func TestPlannedTiledMemory(t *testing.T) {
	reference, err := cpu.Open()
	if err != nil {
		t.Skip(err)
	}
	defer reference.Close()
	m, err := Builtin("llama", "--log-memory")
	if err != nil {
		t.Fatal(err)
	}
	for _, sizes := range []config.Layout{{WorldSize: 1, TP: 1, PP: 1, DP: 1}, {WorldSize: 4, TP: 2, PP: 1, DP: 2, SequenceParallel: true}} {
		for _, folder := range []string{"", t.TempDir()} {
			v, with := Variant{Layout: sizes, MicroBatch: 1}, m
			v.Layout.VP, v.Layout.CP, v.Layout.EP, v.Layout.Sharding, v.Layout.MemoryCentricTiling = 1, 1, 1, "optim_grads_params", 3
			with.Config.OffloadFolder, with.Config.GlobalBatchSize = folder, 4 // two micro-batches of two ranks
			if err := plannedLikeUsed(with, v, reference, cpu.Open); err != nil {
				t.Errorf("%v, folder %q: %v", v, folder, err)
			}
		}
	}
}

package convert

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// TestSpeed prints rates of saving, loading, resharding and converting a state of
// 1.5 GB (GPT-2 124M with moments; conversions move its 0.5 GB of weights, and are
// counted by the bytes they write) against a
// raw writer and a raw reader of the same disk. What is measured takes turns with its
// raw twin, and medians are printed. It runs where MONOTRON_SPEED is set, to a folder
// on the disk to be measured; nothing is asserted.
func TestSpeed(t *testing.T) {
	root := os.Getenv("MONOTRON_SPEED")
	if root == "" {
		t.Skip("MONOTRON_SPEED names no folder to measure in")
	}
	dir, err := os.MkdirTemp(root, "speed-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s := newSpeed(t, dir)
	defer s.dev.Arena.Close()
	s.saving()
	s.loading()
	s.resharding()
	s.converting()
}

type speed struct {
	t     *testing.T
	dir   string
	dev   *device.Device
	model spec.Model
	list  []mpu.Stored
	bytes int64
}

func newSpeed(t *testing.T, dir string) *speed {
	m, err := spec.Preset("gpt2-124m")
	if err != nil {
		t.Fatal(err)
	}
	m.PaddedVocabSize = m.VocabSize
	s := &speed{t: t, dir: dir, dev: ref.Open(), model: m}
	s.list = s.stored(s.dev, 0, 1, 0, 1, true)
	for _, x := range s.list {
		s.bytes += x.Tensor.Bytes()
	}
	return s
}

// stored are the tensors of one rank of tp x pp: rows cut over tp, layers over pp.
func (s *speed) stored(d *device.Device, tp, tps, pp, pps int64, fill bool) (list []mpu.Stored) {
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]float32, 1<<16)
	for i := range noise {
		noise[i] = float32(r.NormFloat64())
	}
	for i, e := range checkpoint.Expected(&s.model) {
		if int64(i)%pps != pp {
			continue
		}
		size, from := append([]int64{}, e.Shape...), make([]int64, len(e.Shape))
		first, last := size[0]*tp/tps, size[0]*(tp+1)/tps
		from[0], size[0] = first, last-first
		piece := mpu.Piece{From: from, Size: size}
		for _, prefix := range []string{checkpoint.Model, checkpoint.ExpAvg, checkpoint.ExpSq} {
			x := d.Arena.Alloc(device.Parameters, device.F32, size...)
			if fill {
				flat := x.Reshape(x.Len())
				for at := int64(0); at < x.Len(); at += int64(len(noise)) {
					n := min(int64(len(noise)), x.Len()-at)
					device.WriteSlice(d, flat.Slice(0, at, n), noise[:n])
				}
			}
			list = append(list, mpu.Stored{Name: prefix + e.Name, Global: e.Shape, Tensor: x, Pieces: []mpu.Piece{piece}, Write: true})
		}
	}
	return list
}

func (s *speed) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

const rounds = 5

// measured is how fast one run moved bytes, and what it cost.
type measured struct{ rate, cpu float64 } // GB/s; seconds of processor time a GB

func measure(n int64, work func()) measured {
	start, cpu := time.Now(), cpuSeconds()
	work()
	gb := float64(n) / 1e9
	return measured{gb / time.Since(start).Seconds(), (cpuSeconds() - cpu) / gb}
}

// contest runs works in turn, several rounds, and prints medians: rate, processor
// time, and for all but the first the share of the first's rate in the same round.
// before prepares each run and is not counted.
func contest(n int64, before func(), names []string, works ...func()) {
	runs, shares := make([][]measured, len(works)), make([][]float64, len(works))
	for range rounds {
		for i, work := range works {
			before()
			m := measure(n, work)
			runs[i] = append(runs[i], m)
			shares[i] = append(shares[i], m.rate/runs[0][len(runs[0])-1].rate)
		}
	}
	for i, name := range names {
		share := ""
		if i > 0 {
			share = fmt.Sprintf("%.2f of raw (%.2f to %.2f)", median(shares[i]), slices.Min(shares[i]), slices.Max(shares[i]))
		}
		rate := median(column(runs[i], func(m measured) float64 { return m.rate }))
		cpu := median(column(runs[i], func(m measured) float64 { return m.cpu }))
		fmt.Printf("%-46s %6.2f GB/s  %5.2f s of cpu a GB  %s\n", name, rate, cpu, share)
	}
}

func column(list []measured, of func(measured) float64) []float64 {
	out := make([]float64, len(list))
	for i, m := range list {
		out[i] = of(m)
	}
	return out
}

func median(list []float64) float64 { return slices.Sorted(slices.Values(list))[len(list)/2] }

// cpuSeconds is what this process has used: on a busy machine the fairer number.
func cpuSeconds() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	seconds := func(t unix.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(u.Utime) + seconds(u.Stime)
}

func (s *speed) path(name string) string { return filepath.Join(s.dir, name) }

// rawWrite writes n bytes and syncs.
func (s *speed) rawWrite(name string, n int64) {
	f, err := os.Create(s.path(name))
	s.must(err)
	buf := make([]byte, 16<<20)
	for at := int64(0); at < n; at += int64(len(buf)) {
		_, err := f.Write(buf[:min(int64(len(buf)), n-at)])
		s.must(err)
	}
	s.must(f.Sync())
	s.must(f.Close())
}

// rawRead is one reader of a folder or file, from start to end or to most bytes.
func (s *speed) rawRead(path string, most int64) {
	buf := make([]byte, 16<<20)
	s.files(path, func(f *os.File) {
		for most > 0 {
			n, err := f.Read(buf[:min(most, int64(len(buf)))])
			if most -= int64(n); err == io.EOF {
				break
			}
			s.must(err)
		}
	})
}

// files opens every file of a folder, or the file, for each.
func (s *speed) files(path string, each func(*os.File)) {
	s.must(filepath.WalkDir(path, func(p string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		each(f)
		return nil
	}))
}

// cold drops what the page cache has of a folder or file.
func (s *speed) cold(path string) {
	s.files(path, func(f *os.File) { s.must(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)) })
}

func (s *speed) save(name string) {
	_, err := native.Save(context.Background(), s.path(name), native.State{Iteration: 1}, s.list, s.dev, native.SaveOptions{})
	s.must(err)
}

// gone removes what a run before made.
func (s *speed) gone(names ...string) func() {
	return func() {
		for _, name := range names {
			s.must(os.RemoveAll(s.path(name)))
		}
	}
}

func (s *speed) saving() {
	contest(s.bytes, s.gone("raw", "native"), []string{"raw write and fsync", "native save"},
		func() { s.rawWrite("raw", s.bytes) },
		func() { s.save("native") })
	s.stalling()
}

// stalling prints how long --async-save keeps training waiting: until SaveAsync
// returns, and then at the end of the next step's backward pass, before the
// weights change, where the copy to host memory was not done by then.
func (s *speed) stalling() {
	start := time.Now()
	pending, err := native.SaveAsync(context.Background(), s.path("async"), native.State{Iteration: 1}, s.list, s.dev, native.SaveOptions{})
	s.must(err)
	stall := time.Since(start)
	pending.Copied()
	fmt.Printf("--async-save: a step waits %.4f s for it, and is to leave the weights alone for %.3f s\n", stall.Seconds(), time.Since(start).Seconds())
	_, err = pending.Wait()
	s.must(err)
	s.must(os.RemoveAll(s.path("async")))
}

// nativeFile is what saving left.
const nativeFile = "native/iter_0000001/rank_00000.safetensors"

func (s *speed) loading() {
	raw := func() { s.rawRead(s.path(nativeFile), s.bytes) }
	load := func() {
		_, _, err := native.Load(s.path("native"), -1, s.list, s.dev, native.LoadOptions{})
		s.must(err)
	}
	contest(s.bytes, func() { s.cold(s.path(nativeFile)) }, []string{"raw read, cold, one reader", "native load, cold"}, raw, load)
	contest(s.bytes, func() {}, []string{"raw read, warm, one reader", "native load, warm"}, raw, load)
}

// resharding loads one rank's checkpoint as TP4xPP2, all ranks at once.
func (s *speed) resharding() {
	var ranks [8][]mpu.Stored
	for i := range ranks {
		d := ref.Open()
		defer d.Arena.Close()
		ranks[i] = s.stored(d, int64(i%4), 4, int64(i/4), 2, false)
	}
	contest(s.bytes, func() { s.cold(s.path(nativeFile)) }, []string{"raw read, cold, one reader", "native load, cold, TP1 to TP4xPP2"},
		func() { s.rawRead(s.path(nativeFile), s.bytes) },
		func() {
			var all sync.WaitGroup
			for _, list := range ranks {
				all.Go(func() {
					d := ref.Open()
					defer d.Arena.Close()
					_, _, err := native.Load(s.path("native"), -1, list, d, native.LoadOptions{})
					if err != nil {
						s.t.Error(err)
					}
				})
			}
			all.Wait()
		})
}

// converting goes from Hugging Face to Megatron's formats and back to ours.
func (s *speed) converting() {
	s.must(os.RemoveAll(s.path("native")))
	s.must(s.nameModel())
	layout := []string{"--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"}
	s.convert("named", "hf", "hf", "--weights-only")
	s.must(os.RemoveAll(s.path("named")))
	s.convert("hf", "torch", "torch", layout...)
	s.convert("hf", "dist", "torch_dist", layout...)
	s.convert("hf", "native", "native")
	s.convert("torch", "back", "hf")
}

// convert measures one conversion, its input cold and in memory, next to a raw writer
// of as many bytes, and to one raw reader and one raw writer at once: a disk that
// has one rate for both bounds a cold conversion there.
func (s *speed) convert(from, to, format string, more ...string) {
	args := append([]string{"--input", s.path(from), "--to", format, "--output", s.path(to)}, more...)
	run := func() { convert(s.t, args...) }
	run()
	size := int64(0)
	s.files(s.path(to), func(f *os.File) {
		info, err := f.Stat()
		s.must(err)
		size += info.Size()
	})
	raw := func() { s.rawWrite("raw", size) }
	both := func() {
		var all sync.WaitGroup
		all.Go(func() { s.rawRead(s.path(from), size) })
		raw()
		all.Wait()
	}
	gone := s.gone("raw", to)
	contest(size, func() { gone(); s.cold(s.path(from)) },
		[]string{"raw write and fsync", "raw write beside a raw reader", "convert " + from + " to " + to + ", cold"}, raw, both, run)
	contest(size, func() { gone(); s.rawRead(s.path(from), math.MaxInt64) },
		[]string{"raw write and fsync", "convert " + from + " to " + to + ", input in memory"}, raw, run)
}

// nameModel saves once more with a Config that says which model it is.
func (s *speed) nameModel() error {
	text := fmt.Sprintf(`{"Model":%s,"Precision":"f32","SeqLength":1024}`, marshal(s.t, s.model))
	_, err := native.Save(context.Background(), s.path("named"), native.State{Iteration: 1, Config: []byte(text)}, s.list, s.dev, native.SaveOptions{})
	return err
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

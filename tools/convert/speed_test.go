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

// BenchmarkSpeed measures saving, loading, resharding and converting a state of 1.5 GB (GPT-2 124M with moments;
// conversions move its 0.5 GB of weights, and are counted by the bytes they write) and a raw writer and a raw reader of
// the same disk, in turn. Run it with -benchtime 5x for medians of five rounds, and with TMPDIR on the disk to be
// measured. Each benchmark uses the files of those before it.
func BenchmarkSpeed(b *testing.B) {
	s := newSpeed(b)
	defer s.dev.Arena.Close()
	s.saving(b)
	s.loading(b)
	s.resharding(b)
	s.converting(b)
}

type speed struct {
	dir   string
	dev   *device.Device
	model spec.Model
	list  []mpu.Stored
	bytes int64
}

func newSpeed(b *testing.B) *speed {
	m, err := spec.Preset("gpt2-124m")
	if err != nil {
		b.Fatal(err)
	}
	m.PaddedVocabSize = m.VocabSize
	s := &speed{dir: b.TempDir(), dev: ref.Open(), model: m}
	s.list = stored(s.dev, &m, 0, 1, 0, 1, true)
	for _, x := range s.list {
		s.bytes += x.Tensor.Bytes()
	}
	return s
}

// stored are the tensors of m on one rank of tp x pp: rows cut over tp, layers over pp.
func stored(d *device.Device, m *spec.Model, tp, tps, pp, pps int64, fill bool) (list []mpu.Stored) {
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]float32, 1<<16)
	for i := range noise {
		noise[i] = float32(r.NormFloat64())
	}
	for i, e := range checkpoint.Expected(m) {
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

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// measured is how fast one run moved bytes, and what it cost.
type measured struct{ rate, cpu float64 } // GB/s; seconds of processor time a GB

func measure(n int64, work func()) measured {
	start, cpu := time.Now(), cpuSeconds()
	work()
	gb := float64(n) / 1e9
	return measured{gb / time.Since(start).Seconds(), (cpuSeconds() - cpu) / gb}
}

// A work is what a contest measures; its name is part of the names of its numbers.
type work struct {
	name string
	run  func()
}

// contest runs works in turn, a round for each operation, and reports medians: rate, processor time, and for all but the
// first the share of the first's rate in the same round, with its least and most. before prepares each run and is not
// counted.
func contest(b *testing.B, name string, n int64, before func(), works ...work) {
	b.Run(name, func(b *testing.B) {
		runs, shares := make([][]measured, len(works)), make([][]float64, len(works))
		for b.Loop() {
			for i, w := range works {
				before()
				m := measure(n, w.run)
				runs[i] = append(runs[i], m)
				shares[i] = append(shares[i], m.rate/runs[0][len(runs[0])-1].rate)
			}
		}
		for i, w := range works {
			b.ReportMetric(median(column(runs[i], func(m measured) float64 { return m.rate })), w.name+"-GB/s")
			b.ReportMetric(median(column(runs[i], func(m measured) float64 { return m.cpu })), w.name+"-cpu-s/GB")
			if i > 0 {
				b.ReportMetric(median(shares[i]), w.name+"/"+works[0].name)
				b.ReportMetric(slices.Min(shares[i]), w.name+"/"+works[0].name+"-least")
				b.ReportMetric(slices.Max(shares[i]), w.name+"/"+works[0].name+"-most")
			}
		}
		b.ReportMetric(0, "ns/op")
	})
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
func (s *speed) rawWrite(b *testing.B, name string, n int64) {
	f, err := os.Create(s.path(name))
	must(b, err)
	buf := make([]byte, 16<<20)
	for at := int64(0); at < n; at += int64(len(buf)) {
		_, err := f.Write(buf[:min(int64(len(buf)), n-at)])
		must(b, err)
	}
	must(b, f.Sync())
	must(b, f.Close())
}

// rawRead is one reader of a folder or file, from start to end or to most bytes.
func (s *speed) rawRead(b *testing.B, path string, most int64) {
	buf := make([]byte, 16<<20)
	eachFile(b, path, func(f *os.File) {
		for most > 0 {
			n, err := f.Read(buf[:min(most, int64(len(buf)))])
			if most -= int64(n); err == io.EOF {
				break
			}
			must(b, err)
		}
	})
}

// eachFile opens every file of a folder, or the file, for each.
func eachFile(tb testing.TB, path string, each func(*os.File)) {
	must(tb, filepath.WalkDir(path, func(p string, e os.DirEntry, err error) error {
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
func cold(b *testing.B, path string) {
	eachFile(b, path, func(f *os.File) { must(b, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)) })
}

func (s *speed) save(b *testing.B, name string) {
	_, err := native.Save(context.Background(), s.path(name), native.State{Iteration: 1}, s.list, s.dev, native.SaveOptions{})
	must(b, err)
}

// gone removes what a run before made.
func (s *speed) gone(b *testing.B, names ...string) func() {
	return func() {
		for _, name := range names {
			must(b, os.RemoveAll(s.path(name)))
		}
	}
}

func (s *speed) saving(b *testing.B) {
	contest(b, "save", s.bytes, s.gone(b, "raw", "native"),
		work{"raw-write", func() { s.rawWrite(b, "raw", s.bytes) }},
		work{"save", func() { s.save(b, "native") }})
	b.Run("async-save", s.stalling)
}

// stalling measures how long --async-save keeps training waiting: until SaveAsync
// returns, and then at the end of the next step's backward pass, before the
// weights change, where the copy to host memory was not done by then.
func (s *speed) stalling(b *testing.B) {
	var waits, copies []float64
	for b.Loop() {
		start := time.Now()
		pending, err := native.SaveAsync(context.Background(), s.path("async"), native.State{Iteration: 1}, s.list, s.dev, native.SaveOptions{})
		must(b, err)
		waits = append(waits, time.Since(start).Seconds())
		pending.Copied()
		copies = append(copies, time.Since(start).Seconds())
		_, err = pending.Wait()
		must(b, err)
		must(b, os.RemoveAll(s.path("async")))
	}
	b.ReportMetric(median(waits), "s-until-SaveAsync-returns")
	b.ReportMetric(median(copies), "s-until-the-weights-may-change")
	b.ReportMetric(0, "ns/op")
}

// nativeFile is what saving left.
const nativeFile = "native/iter_0000001/rank_00000.safetensors"

func (s *speed) loading(b *testing.B) {
	raw := work{"raw-read", func() { s.rawRead(b, s.path(nativeFile), s.bytes) }}
	load := work{"load", func() {
		_, _, err := native.Load(s.path("native"), -1, s.list, s.dev, native.LoadOptions{})
		must(b, err)
	}}
	contest(b, "load, cold", s.bytes, func() { cold(b, s.path(nativeFile)) }, raw, load)
	contest(b, "load, warm", s.bytes, func() {}, raw, load)
}

// resharding loads one rank's checkpoint as TP4xPP2, all ranks at once.
func (s *speed) resharding(b *testing.B) {
	var ranks [8][]mpu.Stored
	for i := range ranks {
		d := ref.Open()
		defer d.Arena.Close()
		ranks[i] = stored(d, &s.model, int64(i%4), 4, int64(i/4), 2, false)
	}
	contest(b, "load as TP4xPP2, cold", s.bytes, func() { cold(b, s.path(nativeFile)) },
		work{"raw-read", func() { s.rawRead(b, s.path(nativeFile), s.bytes) }},
		work{"load", func() {
			var all sync.WaitGroup
			for _, list := range ranks {
				all.Go(func() {
					d := ref.Open()
					defer d.Arena.Close()
					_, _, err := native.Load(s.path("native"), -1, list, d, native.LoadOptions{})
					if err != nil {
						b.Error(err)
					}
				})
			}
			all.Wait()
		}})
}

// converting goes from Hugging Face to Megatron's formats and back to ours.
func (s *speed) converting(b *testing.B) {
	must(b, os.RemoveAll(s.path("native")))
	must(b, s.nameModel(b))
	layout := []string{"--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"}
	s.convert(b, "named", "hf", "hf", "--weights-only")
	must(b, os.RemoveAll(s.path("named")))
	s.convert(b, "hf", "torch", "torch", layout...)
	s.convert(b, "hf", "dist", "torch_dist", layout...)
	s.convert(b, "hf", "native", "native")
	s.convert(b, "torch", "back", "hf")
}

// convert measures one conversion, its input cold and in memory, next to a raw writer
// of as many bytes, and to one raw reader and one raw writer at once: a disk that
// has one rate for both bounds a cold conversion there.
func (s *speed) convert(b *testing.B, from, to, format string, more ...string) {
	args := append([]string{"--input", s.path(from), "--to", format, "--output", s.path(to)}, more...)
	run := func() { convert(b, args...) }
	run()
	size := int64(0)
	eachFile(b, s.path(to), func(f *os.File) {
		info, err := f.Stat()
		must(b, err)
		size += info.Size()
	})
	raw := work{"raw-write", func() { s.rawWrite(b, "raw", size) }}
	both := work{"raw-write-beside-a-reader", func() {
		var all sync.WaitGroup
		all.Go(func() { s.rawRead(b, s.path(from), size) })
		raw.run()
		all.Wait()
	}}
	gone, name := s.gone(b, "raw", to), fmt.Sprintf("convert %s to %s", from, to)
	contest(b, name+", cold", size, func() { gone(); cold(b, s.path(from)) }, raw, both, work{"convert", run})
	contest(b, name+", input in memory", size, func() { gone(); s.rawRead(b, s.path(from), math.MaxInt64) }, raw, work{"convert", run})
}

// nameModel saves once more with a Config that says which model it is.
func (s *speed) nameModel(b *testing.B) error {
	text := fmt.Sprintf(`{"Model":%s,"Precision":"f32","SeqLength":1024}`, marshal(b, s.model))
	_, err := native.Save(context.Background(), s.path("named"), native.State{Iteration: 1, Config: []byte(text)}, s.list, s.dev, native.SaveOptions{})
	return err
}

func marshal(tb testing.TB, v any) []byte {
	tb.Helper()
	text, err := json.Marshal(v)
	must(tb, err)
	return text
}

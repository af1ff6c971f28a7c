package convert

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/formats"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// TestSpeed prints rates of saving, loading, resharding and converting a state of
// 1.5 GB (GPT-2 124M with moments) against a raw writer and a raw reader of the
// same disk, each measured beside it. It runs where MONOTRON_SPEED is set, to a
// folder on the disk to be measured; nothing is asserted.
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
	for i, e := range formats.Expected(&s.model) {
		if int64(i)%pps != pp {
			continue
		}
		size, from := append([]int64{}, e.Shape...), make([]int64, len(e.Shape))
		first, last := size[0]*tp/tps, size[0]*(tp+1)/tps
		from[0], size[0] = first, last-first
		piece := mpu.Piece{From: from, Size: size}
		for _, prefix := range []string{formats.Model, formats.ExpAvg, formats.ExpSq} {
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

// rate prints how fast work moved n bytes, as a share of a raw rate.
func (s *speed) rate(what string, n int64, raw float64, work func()) float64 {
	start, cpu := time.Now(), cpuSeconds()
	work()
	r := float64(n) / time.Since(start).Seconds() / 1e9
	share := ""
	if raw > 0 {
		share = fmt.Sprintf("%.2f of raw", r/raw)
	}
	fmt.Printf("%-40s %6.2f GB/s  %6.2f s of cpu a GB  %s\n", what, r, (cpuSeconds()-cpu)*1e9/float64(n), share)
	return r
}

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

// rawRead is one reader from start to end.
func (s *speed) rawRead(path string) {
	f, err := os.Open(path)
	s.must(err)
	buf := make([]byte, 16<<20)
	for {
		if _, err := f.Read(buf); err == io.EOF {
			break
		} else {
			s.must(err)
		}
	}
	s.must(f.Close())
}

// cold drops what the page cache has of a folder or file.
func (s *speed) cold(path string) {
	s.must(filepath.WalkDir(path, func(p string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	}))
}

func (s *speed) save(name string) {
	_, err := checkpoint.Save(context.Background(), s.path(name), checkpoint.State{Iteration: 1}, s.list, s.dev, checkpoint.SaveOptions{})
	s.must(err)
}

func (s *speed) saving() {
	var raws, saves []float64
	for i := range 3 {
		raws = append(raws, s.rate("raw write and fsync", s.bytes, 0, func() { s.rawWrite("raw", s.bytes) }))
		s.must(os.Remove(s.path("raw")))
		name := fmt.Sprintf("native%d", i)
		saves = append(saves, s.rate("native save", s.bytes, raws[i], func() { s.save(name) }))
		if i > 0 {
			s.must(os.RemoveAll(s.path(name)))
		}
	}
	fmt.Printf("native save, medians: %.2f of raw\n", median(saves)/median(raws))
	s.stalling()
}

// stalling prints how long --async-save keeps training waiting: until SaveAsync
// returns, and then at the end of the next step's backward pass, before the
// weights change, where the copy to host memory was not done by then.
func (s *speed) stalling() {
	start := time.Now()
	pending, err := checkpoint.SaveAsync(context.Background(), s.path("async"), checkpoint.State{Iteration: 1}, s.list, s.dev, checkpoint.SaveOptions{})
	s.must(err)
	stall := time.Since(start)
	pending.Copied()
	fmt.Printf("--async-save: a step waits %.4f s for it, and is to leave the weights alone for %.3f s\n", stall.Seconds(), time.Since(start).Seconds())
	_, err = pending.Wait()
	s.must(err)
	s.must(os.RemoveAll(s.path("async")))
}

func median(list []float64) float64 {
	a, b, c := list[0], list[1], list[2]
	return max(min(a, b), min(max(a, b), c))
}

func (s *speed) loading() {
	file := s.path("native0/iter_0000001/rank_00000.safetensors")
	load := func() {
		_, _, err := checkpoint.Load(s.path("native0"), -1, s.list, s.dev, checkpoint.LoadOptions{})
		s.must(err)
	}
	s.cold(file)
	raw := s.rate("raw read, cold, one reader", s.bytes, 0, func() { s.rawRead(file) })
	s.cold(file)
	s.rate("native load, cold", s.bytes, raw, load)
	raw = s.rate("raw read, warm, one reader", s.bytes, 0, func() { s.rawRead(file) })
	s.rate("native load, warm", s.bytes, raw, load)
}

// resharding loads one rank's checkpoint as TP4xPP2, all ranks at once.
func (s *speed) resharding() {
	var ranks [8][]mpu.Stored
	for i := range ranks {
		d := ref.Open()
		defer d.Arena.Close()
		ranks[i] = s.stored(d, int64(i%4), 4, int64(i/4), 2, false)
	}
	file := s.path("native0/iter_0000001/rank_00000.safetensors")
	s.cold(file)
	raw := s.rate("raw read, cold, one reader", s.bytes, 0, func() { s.rawRead(file) })
	s.cold(file)
	s.rate("native load, cold, TP1 to TP4xPP2", s.bytes, raw, func() {
		var all sync.WaitGroup
		for _, list := range ranks {
			all.Go(func() {
				d := ref.Open()
				defer d.Arena.Close()
				_, _, err := checkpoint.Load(s.path("native0"), -1, list, d, checkpoint.LoadOptions{})
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
	weights := int64(0)
	for _, x := range s.list {
		if strings.HasPrefix(x.Name, formats.Model) {
			weights += x.Tensor.Bytes()
		}
	}
	raw := s.rate("raw write and fsync", weights, 0, func() { s.rawWrite("raw", weights) })
	step := func(what, from, to string, more ...string) {
		s.cold(s.path(from))
		args := append([]string{"--input", s.path(from), "--to", to, "--output", s.path(what)}, more...)
		s.rate("convert "+from+" to "+to, weights, raw, func() { convert(s.t, args...) })
	}
	s.must(s.nameModel())
	step("hf", "named", "hf", "--weights-only")
	step("torch", "hf", "megatron-torch", "--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2")
	step("dist", "hf", "megatron-torch_dist", "--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2")
	step("native", "hf", "native")
	step("back", "torch", "hf")
}

// nameModel saves once more with a Config that says which model it is.
func (s *speed) nameModel() error {
	text := fmt.Sprintf(`{"Model":%s,"Precision":"f32","SeqLength":1024}`, marshal(s.t, s.model))
	_, err := checkpoint.Save(context.Background(), s.path("named"), checkpoint.State{Iteration: 1, Config: []byte(text)}, s.list, s.dev, checkpoint.SaveOptions{})
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

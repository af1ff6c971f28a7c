package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

func newDevice(t testing.TB) *device.Device {
	d := ref.Open()
	t.Cleanup(d.Arena.Close)
	return d
}

// reused is for tests that load thousands of times; they run one after another.
var reused = ref.Open()

func free(d *device.Device, list []mpu.Stored) {
	for _, s := range list {
		d.Arena.Free(s.Tensor)
	}
}

// fastDir is a temporary folder in memory where the system has one: syncing
// it is free.
func fastDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "checkpoint-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// value is what the tests store at element i of a global tensor, at a step.
func value(name string, step, i int64) float32 {
	return float32(device.Mix(device.StreamKey(uint64(step), name)+uint64(i))>>40) / 1024
}

// layout cuts tensors for one rank.
type layout struct {
	world, rank int
	pieces      func(shape []int64, l layout) []mpu.Piece
}

// rows cuts dimension 0, cols the last one, flat the row-major order in equal
// ranges (a ZeRO shard: up to three boxes), gated two halves of dimension 0.
func rows(shape []int64, l layout) []mpu.Piece { return cut(shape, 0, l) }
func cols(shape []int64, l layout) []mpu.Piece { return cut(shape, len(shape)-1, l) }

func cut(shape []int64, dim int, l layout) []mpu.Piece {
	p := mpu.Piece{From: make([]int64, len(shape)), Size: slices.Clone(shape)}
	w, r := int64(l.world), int64(l.rank)
	p.From[dim] = shape[dim] * r / w
	p.Size[dim] = shape[dim]*(r+1)/w - p.From[dim]
	if p.Size[dim] == 0 {
		return nil
	}
	return []mpu.Piece{p}
}

func gated(shape []int64, l layout) []mpu.Piece {
	half := slices.Clone(shape)
	half[0] /= 2
	if shape[0]%2 != 0 {
		return rows(shape, l)
	}
	gate, up := rows(half, l), rows(half, l)
	for i := range up {
		up[i].From[0] += half[0]
		up[i].Local = gate[i].Len()
	}
	return append(gate, up...)
}

func flat(shape []int64, l layout) []mpu.Piece {
	n := checkpoint.Uncut(shape).Len()
	from, to := n*int64(l.rank)/int64(l.world), n*int64(l.rank+1)/int64(l.world)
	if len(shape) == 1 {
		if from == to {
			return nil
		}
		return []mpu.Piece{{From: []int64{from}, Size: []int64{to - from}}}
	}
	width, start := shape[1], from
	var list []mpu.Piece
	for from < to {
		row, col := from/width, from%width
		size := []int64{1, min(width-col, to-from)}
		if full := (to - from) / width; col == 0 && full > 0 {
			size = []int64{full, width}
		}
		list = append(list, mpu.Piece{From: []int64{row, col}, Size: size, Local: from - start})
		from += size[0] * size[1]
	}
	return list
}

// model is the list of global tensors the tests use.
var model = []struct {
	name  string
	shape []int64
	dtype device.DType
}{
	{"embedding.word_embeddings.weight", []int64{13, 6}, device.F32},
	{"decoder.layers.0.mlp.linear_fc1.weight", []int64{8, 6}, device.BF16},
	{"decoder.final_layernorm.bias", []int64{7}, device.F32},
	{"optimizer.exp_avg.decoder.final_layernorm.bias", []int64{7}, device.F32},
	{"optimizer.step", []int64{1}, device.I64},
}

// tensors makes a rank's part of the model; with fill it holds step's values,
// else a pattern that no step has.
func tensors(t testing.TB, d *device.Device, l layout, step int64, fill bool) []mpu.Stored {
	var list []mpu.Stored
	for _, m := range model {
		pieces := l.pieces(m.shape, l)
		n := int64(3) // padding behind the pieces
		for _, p := range pieces {
			n += p.Len()
		}
		buf := d.Arena.Alloc(device.Parameters, m.dtype, n)
		raw := make([]byte, buf.Bytes())
		for i := range raw {
			raw[i] = 0xa5
		}
		if fill {
			for _, p := range pieces {
				eachElement(p, m.shape, func(local, global int64) { put(raw, m.dtype, local, value(m.name, step, global)) })
			}
		}
		d.Write(buf, raw)
		list = append(list, mpu.Stored{Name: m.name, Global: m.shape, Tensor: buf, Pieces: pieces, Write: true})
	}
	return list
}

// eachElement is the plain form of overlap: coordinates, one by one.
func eachElement(p mpu.Piece, shape []int64, do func(local, global int64)) {
	for i := range p.Len() {
		rest, global, stride := i, int64(0), int64(1)
		for d := len(shape) - 1; d >= 0; d-- {
			global += (p.From[d] + rest%p.Size[d]) * stride
			rest /= p.Size[d]
			stride *= shape[d]
		}
		do(p.Local+i, global)
	}
}

func put(raw []byte, dtype device.DType, i int64, v float32) {
	switch dtype {
	case device.F32:
		*(*float32)(unsafe.Pointer(&raw[4*i])) = v
	case device.I64:
		*(*int64)(unsafe.Pointer(&raw[8*i])) = int64(v)
	default:
		*(*uint16)(unsafe.Pointer(&raw[2*i])) = uint16(int64(v))
	}
}

// wrong compares the tensors, padding included, with step's values.
func wrong(t testing.TB, d *device.Device, got []mpu.Stored, l layout, step int64) error {
	want := tensors(t, d, l, step, true)
	defer free(d, want)
	for i, g := range got {
		a, b := make([]byte, g.Tensor.Bytes()), make([]byte, g.Tensor.Bytes())
		d.Read(a, g.Tensor)
		d.Read(b, want[i].Tensor)
		if !slices.Equal(a, b) {
			return fmt.Errorf("%s of rank %d of %d differs from step %d", g.Name, l.rank, l.world, step)
		}
	}
	return d.Err()
}

var single = layout{1, 0, rows}

func stateAt(step int64) State {
	return State{Iteration: step, ConsumedTrain: 8 * step, Seed: 1234, Version: "test",
		Config: json.RawMessage(`{"lr":0.001,"data":["a<b",1]}`), Extra: map[string]json.RawMessage{"loader": json.RawMessage(`{"epoch":2}`)}}
}

// save writes step's values by one rank.
func save(t testing.TB, dir string, step int64, o SaveOptions) (Report, error) {
	list := tensors(t, reused, single, step, true)
	defer free(reused, list)
	return Save(context.Background(), dir, stateAt(step), list, reused, o)
}

func mustSave(t testing.TB, dir string, step int64, o SaveOptions) {
	t.Helper()
	if _, err := save(t, dir, step, o); err != nil {
		t.Fatal(err)
	}
}

// load reads into fresh tensors of one rank and says which step's values came,
// having compared every byte and the state.
func load(t testing.TB, dir string, step int64) (int64, Report, error) {
	d := reused
	got := tensors(t, d, single, 0, false)
	defer free(d, got)
	st, report, err := Load(dir, step, got, d, LoadOptions{})
	if err != nil {
		return 0, report, err
	}
	clearPadding(t, d, got)
	if err := wrong(t, d, got, single, st.Iteration); err != nil {
		t.Fatalf("silently wrong: %v", err)
	}
	a, _ := json.Marshal(st)
	b, _ := json.Marshal(stateAt(st.Iteration))
	if string(a) != string(b) {
		t.Fatalf("silently wrong state: %s", a)
	}
	return st.Iteration, report, nil
}

// clearPadding checks that the elements behind the pieces were left alone; they
// hold the same pattern in tensors made with and without values.
func clearPadding(t testing.TB, d *device.Device, list []mpu.Stored) {
	for _, s := range list {
		raw := make([]byte, s.Tensor.Bytes())
		d.Read(raw, s.Tensor)
		n := int64(0)
		for _, p := range s.Pieces {
			n += p.Len()
		}
		for _, b := range raw[n*s.Tensor.DType.Size():] {
			if b != 0xa5 {
				t.Fatalf("%s: padding was written", s.Name)
			}
		}
	}
}

// names lists a folder, temporary ones included.
func names(t testing.TB, dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func leftovers(t testing.TB, dir string) []string {
	return slices.DeleteFunc(names(t, dir), func(n string) bool { return !strings.HasPrefix(n, ".") })
}

func iterPath(dir string, step int64) string { return filepath.Join(dir, iterName(step)) }

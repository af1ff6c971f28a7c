package native

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"monotron/csrc/device"
	"monotron/internal/fingerprint"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

// overlap against coordinates compared one by one, random boxes of rank 1 to 4,
// taken in random steps.
func TestOverlap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		rank := 1 + r.IntN(4)
		shape := make([]int64, rank)
		for d := range shape {
			shape[d] = 1 + r.Int64N(5)
		}
		box := func() mpu.Piece {
			p := mpu.Piece{From: make([]int64, rank), Size: make([]int64, rank)}
			for d, n := range shape {
				p.From[d] = r.Int64N(n)
				p.Size[d] = 1 + r.Int64N(n-p.From[d])
			}
			return p
		}
		a, b := box(), box()
		var want, got [][2]int64
		inB := map[int64]int64{}
		eachElement(b, shape, func(local, global int64) { inB[global] = local })
		eachElement(a, shape, func(local, global int64) {
			if at, ok := inB[global]; ok {
				want = append(want, [2]int64{local, at})
			}
		})
		for o := checkpoint.NewOverlap(a, b); o.OK; {
			n := 1 + r.Int64N(o.N)
			for i := range n {
				got = append(got, [2]int64{o.InA + i, o.InB + i})
			}
			o.Take(n)
		}
		if !slices.Equal(got, want) || checkpoint.Meets(a, b) != (len(want) > 0) {
			t.Fatalf("%v and %v of %v: %v, want %v", a, b, shape, got, want)
		}
	}
}

// barrier is a Meet for goroutines; it returns err to all once one has failed.
type barrier struct {
	sync.Mutex
	cond    *sync.Cond
	size    int
	waiting int
	round   int
	failed  error
}

func newBarrier(n int) *barrier {
	b := &barrier{size: n}
	b.cond = sync.NewCond(b)
	return b
}

func (b *barrier) fail(err error) {
	b.Lock()
	defer b.Unlock()
	b.failed = err
	b.cond.Broadcast()
}

func (b *barrier) meet() error {
	b.Lock()
	defer b.Unlock()
	round := b.round
	if b.waiting++; b.waiting == b.size {
		b.waiting, b.round = 0, round+1
		b.cond.Broadcast()
	}
	for b.round == round && b.failed == nil {
		b.cond.Wait()
	}
	return b.failed
}

// together runs one function a rank; a failing rank cancels the others' Meet.
func together(t testing.TB, world int, run func(rank int, meet func() error) error) error {
	b := newBarrier(world)
	errs := make([]error, world)
	var wg sync.WaitGroup
	for rank := range world {
		wg.Go(func() {
			if errs[rank] = run(rank, b.meet); errs[rank] != nil {
				b.fail(fmt.Errorf("rank %d failed", rank))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Every layout's checkpoint loads into every other layout, bit for bit, and has
// the same weight hash.
func TestAnyLayoutToAny(t *testing.T) {
	cuts := map[string]func([]int64, layout) []mpu.Piece{"rows": rows, "cols": cols, "flat": flat, "gated": gated}
	type named struct {
		name  string
		world int
	}
	var all []named
	for name := range cuts {
		for _, world := range []int{1, 2, 3, 5} {
			all = append(all, named{name, world})
		}
	}
	var hash fingerprint.Sum
	for _, from := range all {
		dir := t.TempDir()
		sums := make([]fingerprint.Sum, from.world)
		err := together(t, from.world, func(rank int, meet func() error) (err error) {
			d := newDevice(t)
			list := tensors(t, d, layout{from.world, rank, cuts[from.name]}, 9, true)
			if sums[rank], err = Hash(list, d); err != nil {
				return err
			}
			_, err = Save(context.Background(), dir, stateAt(9), list, d, SaveOptions{Rank: rank, World: from.world, Meet: meet})
			return err
		})
		if err != nil {
			t.Fatalf("%v: %v", from, err)
		}
		var total fingerprint.Sum
		for _, s := range sums {
			total.Plus(s)
		}
		if hash == (fingerprint.Sum{}) {
			hash = total
		}
		f, err := Open(dir, -1)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := f.Hash(func(string) bool { return true })
		f.Close()
		if total != hash || stored != hash || err != nil {
			t.Errorf("%v: hash %v in memory, %v stored (%v), want %v", from, total, stored, err, hash)
		}
		for _, to := range all {
			for rank := range to.world {
				l := layout{to.world, rank, cuts[to.name]}
				d := newDevice(t)
				got := tensors(t, d, l, 0, false)
				if _, _, err := Load(dir, -1, got, d, LoadOptions{}); err != nil {
					t.Fatalf("%v to %v: %v", from, to, err)
				}
				clearPadding(t, d, got)
				if err := wrong(t, d, got, l, 9); err != nil {
					t.Fatalf("%v to %v: %v", from, to, err)
				}
			}
		}
	}
}

// A hash sees a changed bit, a swap of two elements and a renamed tensor.
func TestHashSeesChanges(t *testing.T) {
	d := newDevice(t)
	sum := func(change func(list []mpu.Stored, raw []byte)) fingerprint.Sum {
		list := tensors(t, d, single, 4, true)
		raw := make([]byte, list[0].Tensor.Bytes())
		d.Read(raw, list[0].Tensor)
		change(list, raw)
		d.Write(list[0].Tensor, raw)
		h, err := Hash(list, d)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	seen := map[fingerprint.Sum]string{}
	for name, change := range map[string]func([]mpu.Stored, []byte){
		"same":    func([]mpu.Stored, []byte) {},
		"bit":     func(_ []mpu.Stored, raw []byte) { raw[17] ^= 1 },
		"swap":    func(_ []mpu.Stored, raw []byte) { raw[0], raw[4] = raw[4], raw[0] },
		"renamed": func(list []mpu.Stored, _ []byte) { list[0].Name += "x" },
	} {
		h := sum(change)
		if seen[h] != "" {
			t.Errorf("%s and %s have one hash", name, seen[h])
		}
		seen[h] = name
	}
	padding := sum(func(_ []mpu.Stored, raw []byte) { raw[len(raw)-1] ^= 1 })
	if seen[padding] != "same" {
		t.Error("padding is in the hash")
	}
}

// Tensors in pieces of more than one chunk, cut across chunk borders.
func TestLargeTensorsCrossChunks(t *testing.T) {
	shape := []int64{3, 5 << 20} // 60 MiB of f32: four chunks
	dir := t.TempDir()
	n := checkpoint.Uncut(shape).Len()
	stored := func(d *device.Device, l layout, fill bool) mpu.Stored {
		pieces := l.pieces(shape, l)
		buf := d.Arena.Alloc(device.Parameters, device.F32, pieces[0].Len())
		host := make([]float32, pieces[0].Len())
		if fill {
			for i := range host {
				host[i] = float32(i)
			}
		}
		device.WriteSlice(d, buf, host)
		return mpu.Stored{Name: "big", Global: shape, Tensor: buf, Pieces: pieces, Write: true}
	}
	d := newDevice(t)
	list := []mpu.Stored{stored(d, single, true)}
	p, err := SaveAsync(context.Background(), dir, stateAt(1), list, d, SaveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	for rank := range 2 {
		l := layout{2, rank, cols}
		got := stored(d, l, false)
		if _, _, err := Load(dir, -1, []mpu.Stored{got}, d, LoadOptions{}); err != nil {
			t.Fatal(err)
		}
		values := device.ReadSlice[float32](d, got.Tensor)
		eachElement(got.Pieces[0], shape, func(local, global int64) {
			if values[local] != float32(global) {
				t.Fatalf("rank %d: element %d of %d is %v", rank, global, n, values[local])
			}
		})
	}
}

// Precision flags that differ are an error that says so; with Convert the
// numbers are rounded, and reported.
func TestConversion(t *testing.T) {
	dir := t.TempDir()
	d := newDevice(t)
	values := []float32{1, -2.5, 3.14159, 1e-8, 65504}
	source := d.Arena.Alloc(device.Parameters, device.F32, 5)
	device.WriteSlice(d, source, values)
	piece := []mpu.Piece{checkpoint.Uncut([]int64{5})}
	list := []mpu.Stored{{Name: "w", Global: []int64{5}, Tensor: source, Pieces: piece, Write: true}}
	if _, err := Save(context.Background(), dir, stateAt(1), list, d, SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	list[0].Tensor = d.Arena.Alloc(device.Parameters, device.BF16, 5)
	_, _, err := Load(dir, -1, list, d, LoadOptions{})
	if err == nil || !contains(err.Error(), `"w" is F32 in the checkpoint, but BF16 in this run`) {
		t.Errorf("got %v", err)
	}
	_, report, err := Load(dir, -1, list, d, LoadOptions{Convert: true})
	if err != nil || len(report.Converted) != 1 {
		t.Fatal(err, report)
	}
	for i, got := range device.ReadSlice[uint16](d, list[0].Tensor) {
		if got != safetensors.ToBF16(values[i]) {
			t.Errorf("element %d is %#x", i, got)
		}
	}
}

// Where one rank of several cannot write, every rank's Save is an error, nothing
// of it is left, and the next save works; whichever rank it is and whatever it
// cannot do.
func TestAFailureIsEverybodys(t *testing.T) {
	const world = 3
	for failing := range world {
		for op := 1; ; op++ {
			dir := fastDir(t)
			mustSave(t, dir, 1, SaveOptions{})
			b := newBarrier(world)
			errs := make([]error, world)
			reached, done := false, 0 // changes of the failing rank
			var wg sync.WaitGroup
			for rank := range world {
				wg.Go(func() {
					d := newDevice(t)
					o := SaveOptions{Rank: rank, World: world, Meet: b.meet}
					if rank == failing {
						o.fail = func(what, path string) error {
							if done++; done == op && what != "remove" {
								reached = true
								return errors.New("no room")
							}
							return nil
						}
					}
					_, errs[rank] = Save(context.Background(), dir, stateAt(2), tensors(t, d, layout{world, rank, rows}, 2, true), d, o)
				})
			}
			wg.Wait()
			if done < op {
				break // it makes no such change
			}
			if !reached {
				continue // it was a removal
			}
			after := errs[0] != nil && contains(errs[0].Error(), "was already saved")
			for rank, err := range errs {
				if err == nil && !after {
					t.Errorf("rank %d fails at its change %d: rank %d saw no error", failing, op, rank)
				}
			}
			if step, _, err := load(t, dir, -1); err != nil || !after && step != 1 || len(leftovers(t, dir)) > 0 {
				t.Errorf("rank %d fails at its change %d: loaded %d, %v, left %v", failing, op, step, err, leftovers(t, dir))
			}
			mustSave(t, dir, 3, SaveOptions{})
		}
	}
}

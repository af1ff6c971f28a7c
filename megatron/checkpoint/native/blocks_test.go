package native

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

// Claim: a rank reads of a long piece the blocks that it needs, and no more; a
// wrong byte in them is named with its block, one in another block is not reported. A
// manifest without sums of blocks, as earlier versions wrote, loads the same.
func TestPartsOfLongPieces(t *testing.T) {
	shape := []int64{4, 200_000} // 3.2 MB of f32: 13 blocks
	dir, d := fastDir(t), newDevice(t)
	stored := func(l layout) mpu.Stored {
		pieces := rows(shape, l)
		return mpu.Stored{Name: "long", Global: shape, Tensor: d.Arena.Alloc(device.Parameters, device.F32, pieces[0].Len()), Pieces: pieces, Write: true}
	}
	full := stored(single)
	host := make([]float32, full.Tensor.Len())
	for i := range host {
		host[i] = float32(i)
	}
	device.WriteSlice(d, full.Tensor, host)
	report, err := Save(context.Background(), dir, stateAt(1), []mpu.Stored{full}, d, SaveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	load := func(rank int64) (Report, error) {
		got := stored(layout{4, int(rank), rows})
		_, r, err := Load(dir, 1, []mpu.Stored{got}, d, LoadOptions{})
		values := device.ReadSlice[float32](d, got.Tensor)
		for i, v := range values {
			if want := host[rank*shape[1]+int64(i)]; err == nil && v != want {
				t.Fatalf("rank %d element %d: %v, want %v", rank, i, v, want)
			}
		}
		return r, err
	}
	for rank := range int64(4) {
		r, err := load(rank)
		if row := 4 * shape[1]; err != nil || r.Bytes != row {
			t.Errorf("rank %d: %d bytes for a row of %d, %v", rank, r.Bytes, row, err)
		}
	}

	f, err := OpenFolder(report.Folder)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := f.Manifest.Tensors[0].Pieces[0].Offset + 12*blockBytes + 5 // in the last block, of the last row
	file, err := os.OpenFile(filepath.Join(report.Folder, "rank_00000.safetensors"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	was := make([]byte, 1)
	if _, err := file.ReadAt(was, at); err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte{^was[0]}, at); err != nil {
		t.Fatal(err)
	}
	if _, err := load(0); err != nil {
		t.Errorf("a byte that rank 0 does not need: %v", err)
	}
	_, err = load(3)
	piece := f.Manifest.Tensors[0].Pieces[0]
	says := fmt.Sprintf("tensor \"long\": bytes %d to %d: the checksum is ", piece.Offset+12*blockBytes, piece.Offset+4*4*shape[1])
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("rank 3: %v; want %s", err, says)
	}
	if _, err := file.WriteAt(was, at); err != nil {
		t.Fatal(err)
	}

	f.Manifest.Tensors[0].Pieces[0].Blocks = ""
	overwrite(t, filepath.Join(report.Folder, manifestName), encoded(t, f.Manifest))
	if _, err := load(3); err != nil {
		t.Errorf("without sums of blocks: %v", err)
	}
	f.Manifest.Tensors[0].Pieces[0].Blocks = "00"
	if err := f.Manifest.check(); err == nil {
		t.Error("two digits for 13 blocks were accepted")
	}
}

// Claim: a source checks the blocks that a box touches, also by short reads, and
// says which one is wrong; boxes outside it are read.
func TestSourceChecksBlocks(t *testing.T) {
	const rows, row = 4, 200_000
	dir, d := fastDir(t), newDevice(t)
	x := mpu.Stored{Name: "long", Global: []int64{rows, row}, Tensor: d.Arena.Alloc(device.Parameters, device.F32, rows*row),
		Pieces: []mpu.Piece{{From: []int64{0, 0}, Size: []int64{rows, row}}}, Write: true}
	d.Write(x.Tensor, make([]byte, x.Tensor.Bytes()))
	report, err := Save(context.Background(), dir, stateAt(1), []mpu.Stored{x}, d, SaveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	src, err := OpenSource(dir, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	at := src.(*source).folder.Manifest.Tensors[0].Pieces[0].Offset
	file, err := os.OpenFile(filepath.Join(report.Folder, "rank_00000.safetensors"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt([]byte{1}, at+7*blockBytes+9); err != nil { // in row 2
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, size []int64
		bad        bool
	}{
		{[]int64{0, 0}, []int64{2, row}, false},
		{[]int64{3, 0}, []int64{1, row}, false},
		{[]int64{2, 0}, []int64{1, row}, true},
		{[]int64{0, 10}, []int64{2, 5}, false},
		{[]int64{2, 60_000}, []int64{1, 7}, true}, // in another part of the block
		{[]int64{0, 0}, []int64{rows, row}, true},
	} {
		box := mpu.Piece{From: c.from, Size: c.size}
		err := src.Read("long", box, make([]byte, 4*box.Len()))
		says := fmt.Sprintf("tensor \"long\": bytes %d to %d: the checksum is ", at+7*blockBytes, at+8*blockBytes)
		if (err != nil) != c.bad || c.bad && (!strings.Contains(err.Error(), says) || exitcode.CodeOf(err) != exitcode.IO) {
			t.Errorf("the box from %v size %v: %v", c.from, c.size, err)
		}
	}
}

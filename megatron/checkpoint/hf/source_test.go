package hf

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/golden"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

var goldenFolders = []string{"gpt2-hf-f32", "gpt2-hf-bf16", "gpt2-hf-bare", "gpt2-hf-sharded", "llama-hf-f32", "llama-hf-bf16-sharded-v4", "qwen2-hf-f32", "mixtral-hf-f32"}

func openGolden(t *testing.T, name string) (*Mapped, *Folder) {
	t.Helper()
	dir := filepath.Join(golden.Dir(t, "checkpoint"), name)
	src, err := OpenSource(dir, checkpoint.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = src.Close(), f.Close() })
	return src.(*Mapped), f
}

// Every tensor that a golden folder's model must have exists, and its bytes,
// complete and by boxes that cut rows and columns, equal those of reading element by
// element.
func TestSourceReadsBoxes(t *testing.T) {
	for _, name := range goldenFolders {
		src, f := openGolden(t, name)
		if err := checkpoint.Check(src); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, tensor := range src.Tensors() {
			want, err := f.Tensor(strings.TrimPrefix(tensor.Name, checkpoint.Model))
			if err != nil {
				t.Fatal(err)
			}
			raw, err := checkpoint.ReadAll(src, tensor)
			if err != nil || !slices.Equal(floats(tensor.DType, raw), want) {
				t.Fatalf("%s: %s differs, %v", name, tensor.Name, err)
			}
			boxesAgree(t, src, tensor, raw)
		}
	}
}

// boxesAgree reads a middle box of a tensor and compares it with the complete tensor.
func boxesAgree(t *testing.T, src checkpoint.Source, tensor checkpoint.Tensor, full []byte) {
	t.Helper()
	box := mpu.Piece{From: make([]int64, len(tensor.Shape)), Size: slices.Clone(tensor.Shape)}
	for d, n := range tensor.Shape {
		box.From[d], box.Size[d] = n/3, max(1, n/2)
	}
	width := checkpoint.Width(tensor.DType)
	got := make([]byte, box.Len()*width)
	if err := src.Read(tensor.Name, box, got); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, len(got))
	for o := checkpoint.NewOverlap(checkpoint.Uncut(tensor.Shape), box); o.OK; o.Take(o.N) {
		copy(want[o.InB*width:(o.InB+o.N)*width], full[o.InA*width:])
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: the box from %v size %v differs", tensor.Name, box.From, box.Size)
	}
}

// A folder written from a source holds the same bytes under the same names, in
// as many shards as asked for.
func TestWriteGivesTheBytesBack(t *testing.T) {
	for _, name := range goldenFolders {
		src, f := openGolden(t, name)
		out := filepath.Join(t.TempDir(), "out")
		written, err := Write(context.Background(), out, src, checkpoint.WriteOptions{ShardSize: 30000, Tokenizer: f.Path})
		if err != nil {
			t.Fatal(name, err)
		}
		if written.Files < 2 {
			t.Errorf("%s: %d files of at most 30000 bytes", name, written.Files)
		}
		back, err := Open(out)
		if err != nil {
			t.Fatal(name, err)
		}
		for _, s := range f.Mapping.Sources() {
			dtype, _, _ := f.Info(s.Name)
			n := elements(s.Shape) * checkpoint.Width(dtype)
			want, got := make([]byte, n), make([]byte, n)
			if err := f.ReadAt(s.Name, want, 0); err != nil {
				t.Fatal(err)
			}
			if err := back.ReadAt(s.Name, got, 0); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %s comes back changed, %v", name, s.Name, err)
			}
		}
		if err := back.Close(); err != nil {
			t.Error(err)
		}
	}
}

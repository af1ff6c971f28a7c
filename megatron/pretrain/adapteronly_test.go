package pretrain

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/checkpoint/peft"
	"monotron/mpu"
)

// Claim: with --save-adapter-only a checkpoint has the adapter's tensors alone; a run that is stopped continues bit
// for bit, in any layout and precision, over a rounded base too; what reads the checkpoint sees the base's weights
// as a complete one has them.
func TestAdapterOnlyCheckpoints(t *testing.T) {
	for _, flags := range []string{"--lora-rank 2", "--lora-rank 2 --use-dora --bf16", "--lora-rank 2 --quantize-base nf4 --double-quant"} {
		dir := t.TempDir()
		line := strings.Replace(adaptLine(t, dir), "--train-iters 4", "--train-iters 8", 1) + "--micro-batch-size 2 --save-interval 4 " + flags + " "
		full := must(t, dir, line+"--save DIR/whole")
		got := inTwoParts(t, dir, line+"--save-adapter-only ")
		if a, b := strings.Join(got, "\n"), strings.Join(numbers(full.out), "\n"); a != b || len(got) != 8 {
			t.Errorf("%s: in parts\n%s\nat once\n%s", flags, a, b)
		}
		f, err := native.Open(filepath.Join(dir, "part"), -1)
		if err != nil {
			t.Fatal(err)
		}
		for _, tensor := range f.Manifest.Tensors {
			if !strings.Contains(tensor.Name, mpu.AdapterPrefix) {
				t.Errorf("%s: the checkpoint has %s", flags, tensor.Name)
			}
		}
		f.Close()
		a, b := opened(t, filepath.Join(dir, "part")), opened(t, filepath.Join(dir, "whole"))
		if len(a.Tensors()) != len(b.Tensors()) {
			t.Errorf("%s: %d tensors, want %d", flags, len(a.Tensors()), len(b.Tensors()))
		}
		x, y := peft.MergeOwn(a), peft.MergeOwn(b)
		for _, tensor := range x.Tensors() {
			if !slices.Equal(rawOf(t, x, tensor), rawOf(t, y, tensor)) {
				t.Errorf("%s: %s differs from that of a complete checkpoint", flags, tensor.Name)
			}
		}
		more := lossesOf(t, must(t, dir, line+"--train-iters 9 --save-adapter-only --load DIR/part --save DIR/part").out)
		want := lossesOf(t, must(t, dir, line+"--train-iters 9 --load DIR/whole --save DIR/whole").out)
		other := lossesOf(t, must(t, dir, line+"--train-iters 10 --save-adapter-only --load DIR/part --save DIR/other --world-size 2 --use-distributed-optimizer --micro-batch-size 1").out)
		if len(more) != 1 || !slices.Equal(more, want) || len(other) != 1 {
			t.Errorf("%s: losses %v, want %v; in another layout %v", flags, more, want, other)
		}
	}
}

func opened(t *testing.T, dir string) checkpoint.Source {
	t.Helper()
	src, err := all.Open(dir, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = src.Close() })
	return src
}

func rawOf(t *testing.T, src checkpoint.Source, tensor checkpoint.Tensor) []byte {
	t.Helper()
	raw := make([]byte, tensor.Bytes())
	if err := src.Read(tensor.Name, checkpoint.Uncut(tensor.Shape), raw); err != nil {
		t.Fatal(err)
	}
	return raw
}

// Claim: a base that is gone, or has other weights, is one error that names both folders.
func TestAdapterOnlyWithoutItsBase(t *testing.T) {
	dir := t.TempDir()
	line := adaptLine(t, dir) + "--micro-batch-size 2 --lora-rank 2 --save-adapter-only "
	must(t, dir, line+"--save DIR/save")
	next := line + "--train-iters 6 --load DIR/save --save DIR/save "
	weights := filepath.Join(dir, "base", "model.safetensors")
	text, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	other := slices.Clone(text)
	other[len(other)-2] ^= 1 // of one element
	if err := os.WriteFile(weights, other, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := call(t, dir, next); r.err == nil || !strings.Contains(r.err.Error(), "no longer has the weights on which the adapter was trained") || r.code() != exitcode.BadData {
		t.Errorf("%v", r.err)
	}
	if err := os.Rename(filepath.Join(dir, "base"), filepath.Join(dir, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	if r := call(t, dir, next); r.err == nil || !strings.Contains(r.err.Error(), "contains only an adapter, and its base model cannot be read: ") || r.code() != exitcode.NoInput {
		t.Errorf("%v", r.err)
	}
	if r := call(t, dir, strings.Replace(line, "--load DIR/base ", "", 1)); r.err == nil || !strings.Contains(r.err.Error(), "--save-adapter-only") {
		t.Errorf("%v", r.err)
	}
}

// Claim: a checkpoint that was moved to the path of its base is one error, not a search without end.
func TestAdapterOnlyAsItsOwnBase(t *testing.T) {
	dir := t.TempDir()
	line := adaptLine(t, dir) + "--micro-batch-size 2 --lora-rank 2 --save-adapter-only "
	must(t, dir, line+"--save DIR/save")
	if err := errors.Join(os.Rename(filepath.Join(dir, "base"), filepath.Join(dir, "elsewhere")), os.Rename(filepath.Join(dir, "save"), filepath.Join(dir, "base"))); err != nil {
		t.Fatal(err)
	}
	_, err := all.Open(filepath.Join(dir, "base"), checkpoint.OpenOptions{Step: -1})
	if err == nil || !strings.Contains(err.Error(), "names itself as the base model") || exitcode.CodeOf(err) != exitcode.BadData {
		t.Errorf("code %d, %v", exitcode.CodeOf(err), err)
	}
}

package gguf

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/gguf"
	"monotron/internal/golden"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/checkpoint/peft"
)

// matrix are the values of a tensor of a file, and its rows' width.
func matrix(t *testing.T, f *gguf.File, name string) (values []float32, width int64) {
	t.Helper()
	x, ok := f.Tensor(name)
	if !ok {
		t.Fatalf("no %s", name)
	}
	raw := make([]byte, x.Bytes)
	if err := f.ReadAt(x, raw, 0); err != nil {
		t.Fatal(err)
	}
	n := int64(1)
	for _, d := range x.Dims {
		n *= d
	}
	values = make([]float32, n)
	gguf.Decode(values, x.Type, raw)
	return values, x.Dims[0]
}

func openedFile(t *testing.T, path string) *gguf.File {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func text(f *gguf.File, key string) string {
	v, _ := f.Value(key)
	s, _ := v.String()
	return s
}

// Claim (golden/merge: PEFT's adapters of three families): base file + alpha/rank·B·A of the adapter's file, as
// llama.cpp adds them, is the file of the merged model, in every weight that has an adapter, rows permuted, patterns of ranks
// and rsLoRA's scales included; DoRA is refused.
func TestAdapterFiles(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(golden.Dir(t, "merge"), "*", "adapter"))
	if err != nil || len(dirs) < 6 {
		t.Fatalf("%d cases, %v", len(dirs), err)
	}
	families := map[string]bool{}
	for _, adapter := range dirs {
		base, err := hf.OpenSource(filepath.Join(filepath.Dir(adapter), "base"), checkpoint.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer base.Close()
		f, err := peft.Open(adapter, base.Info().Model, base.Info().Family)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		dir, name := t.TempDir(), filepath.Base(filepath.Dir(adapter))
		out := filepath.Join(dir, "adapter.gguf")
		_, err = WriteAdapter(context.Background(), out, base.Info(), f, checkpoint.WriteOptions{})
		if f.Config.DoRA {
			if err == nil || !strings.Contains(err.Error(), "DoRA") {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := os.Stat(out); err == nil {
				t.Errorf("%s: the file was written", name)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		wide := checkpoint.Retype(base, "F32")
		for path, src := range map[string]checkpoint.Source{"base.gguf": wide, "merged.gguf": peft.Merge(wide, f)} {
			if _, err := Write(context.Background(), filepath.Join(dir, path), src, checkpoint.WriteOptions{Quantization: "f32"}); err != nil {
				t.Fatal(err)
			}
		}
		small, plain, merged := openedFile(t, out), openedFile(t, filepath.Join(dir, "base.gguf")), openedFile(t, filepath.Join(dir, "merged.gguf"))
		if text(small, "general.type") != "adapter" || text(small, "adapter.type") != "lora" || text(small, "general.architecture") != text(plain, "general.architecture") {
			t.Errorf("%s: metadata %v", name, small.Keys)
		}
		alpha := f.Config.Alpha
		if v, _ := small.Value("adapter.lora.alpha"); v.Kind() != "FLOAT32" {
			t.Errorf("%s: alpha is %s", name, v.Kind())
		} else if x, _ := v.Float(); x != alpha {
			t.Errorf("%s: alpha %g, want %g", name, x, alpha)
		}
		if len(small.Tensors) != 2*len(f.Adapters) {
			t.Errorf("%s: %d tensors", name, len(small.Tensors))
		}
		for _, x := range small.Tensors {
			weight, is := strings.CutSuffix(x.Name, ".lora_a")
			if !is {
				continue
			}
			a, in := matrix(t, small, x.Name)
			b, r := matrix(t, small, weight+".lora_b")
			w, _ := matrix(t, plain, weight)
			want, width := matrix(t, merged, weight)
			if width != in {
				t.Fatalf("%s: %s has rows of %d, want %d", name, weight, in, width)
			}
			worst := 0.0
			for i := range w {
				sum, row, column := 0.0, int64(i)/in, int64(i)%in
				for k := range r {
					sum += float64(b[row*r+k]) * float64(a[k*in+column])
				}
				worst = math.Max(worst, math.Abs(float64(w[i])+alpha/float64(r)*sum-float64(want[i])))
			}
			if !(worst < 2e-6) {
				t.Errorf("%s: %s is off by %.3g", name, weight, worst)
			}
		}
		families[base.Info().Family] = true
	}
	if len(families) < 3 {
		t.Errorf("families %v", families)
	}
}

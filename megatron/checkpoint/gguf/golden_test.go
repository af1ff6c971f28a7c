package gguf

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/internal/gguf"
	"monotron/internal/golden"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/compare"
	"monotron/megatron/checkpoint/hf"
	"monotron/tokenizer"
)

// goldenCase is a model with what llama.cpp's converter makes of it: golden/gguf.
type goldenCase struct {
	Files map[string]struct {
		Version uint32
		Tensors []struct {
			Name, Type, SHA256 string
			Shape              []int64
		}
		Differs map[string]goldenValue `json:"metadata_that_differs"`
	}
	Metadata map[string]goldenValue
	Samples  []struct {
		Text string
		IDs  []int32
	}
	LlamaCppIDs [][]int32 `json:"llama_cpp_sample_ids"`
	dir         string
}

type goldenValue struct {
	Type  string
	Value any
}

// eachCase calls run for the cases whose models are read.
func eachCase(t *testing.T, run func(t *testing.T, c *goldenCase)) {
	root := golden.Dir(t, "gguf")
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(root, e.Name(), "case.json"))
		if errors.Is(err, os.ErrNotExist) || !e.IsDir() {
			continue
		}
		found++
		c := &goldenCase{dir: filepath.Join(root, e.Name())}
		if err == nil {
			err = json.Unmarshal(raw, c)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err = hf.ReadConfig(filepath.Join(c.dir, "hf", hf.ConfigName)); err != nil {
			t.Errorf("%s: %v", e.Name(), err)
			continue
		}
		t.Run(e.Name(), func(t *testing.T) { run(t, c) })
	}
	if found == 0 {
		t.Fatalf("no cases in %s", root)
	}
}

// write converts a case's folder.
func (c *goldenCase) write(t *testing.T, kind string) string {
	t.Helper()
	src, err := hf.OpenSource(filepath.Join(c.dir, "hf"), checkpoint.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	path := filepath.Join(t.TempDir(), kind+".gguf")
	if _, err := Write(context.Background(), path, src, checkpoint.WriteOptions{Quantization: kind}); err != nil {
		t.Fatal(err)
	}
	return path
}

// Claim: tensors and metadata are those that llama.cpp's converter writes, byte for byte,
// in every type. Source: golden/gguf.
func TestWritesAsLlamaCpp(t *testing.T) {
	free := regexp.MustCompile(`^general\.(name|basename|size_label|finetune|version|organization|description|tags|languages|license.*)$`) // guessed from the folder's name
	eachCase(t, func(t *testing.T, c *goldenCase) {
		for kind, want := range c.Files {
			f, err := gguf.Open(c.write(t, kind))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if f.Version != want.Version || len(f.Tensors) != len(want.Tensors) {
				t.Errorf("%s: version %d with %d tensors, want %d with %d", kind, f.Version, len(f.Tensors), want.Version, len(want.Tensors))
			}
			for _, x := range want.Tensors {
				got, ok := f.Tensor(x.Name)
				raw := make([]byte, got.Bytes)
				if err := f.ReadAt(got, raw, 0); err != nil {
					t.Fatal(err)
				}
				sum := sha256.Sum256(raw)
				if !ok || got.Type.String() != x.Type || !slices.Equal(got.Dims, x.Shape) || hex.EncodeToString(sum[:]) != x.SHA256 {
					t.Errorf("%s: %s is %v %v, want %s %v; its bytes may differ", kind, x.Name, got.Type, got.Dims, x.Type, x.Shape)
				}
			}
			for _, key := range f.Keys {
				if _, ok := c.Metadata[key]; !ok && !free.MatchString(key) {
					t.Errorf("%s: metadata %s is written by nobody else", kind, key)
				}
			}
			for key, x := range c.Metadata {
				if other, ok := want.Differs[key]; ok {
					x = other
				}
				if got, _ := f.Value(key); !free.MatchString(key) && !x.is(got) {
					t.Errorf("%s: metadata %s is %s, want %s %.80s", kind, key, got.Kind(), x.Type, fmt.Sprint(x.Value))
				}
			}
		}
	})
}

// is compares a value with the case's.
func (x goldenValue) is(v gguf.Value) bool {
	if strings.ReplaceAll(v.Kind(), "ARRAY of ", "ARRAY/") != x.Type {
		return false
	}
	if text, ok := v.String(); ok {
		return text == x.Value
	}
	if b, ok := v.Bool(); ok {
		return b == x.Value
	}
	if n, ok := v.Float(); ok {
		want, _ := x.Value.(float64)
		return math.Abs(n-want) <= 1e-6*math.Max(math.Abs(want), 1e-9)
	}
	list, _ := x.Value.([]any)
	if texts, ok := v.Strings(); ok {
		return slices.EqualFunc(texts, list, func(a string, b any) bool { return a == b })
	}
	numbers, ok := v.Floats()
	return ok && slices.EqualFunc(numbers, list, func(a float64, b any) bool { want, _ := b.(float64); return math.Abs(a-want) <= 1e-6*math.Abs(want) })
}

// Claim: what is written is read as the same model: weights bit for bit where the type
// holds them, and the shape. Source: the case's own folder.
func TestReadsBack(t *testing.T) {
	eachCase(t, func(t *testing.T, c *goldenCase) {
		original, err := hf.OpenSource(filepath.Join(c.dir, "hf"), checkpoint.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer original.Close()
		back, err := Open(c.write(t, "f32"), checkpoint.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer back.Close()
		if list := original.Info().Model.Differs(back.Info().Model); len(list) > 0 && !strings.Contains(fmt.Sprint(list), "OriginalMax") {
			t.Errorf("the model differs: %v", list)
		}
		rows, err := compare.Tensors(checkpoint.Retype(original, "F32"), checkpoint.Retype(back, "F32"), compare.Options{})
		if err != nil || len(rows) == 0 {
			t.Fatal(len(rows), err)
		}
		for i := range rows {
			if !rows[i].Equal() && !rounded(&rows[i], back.Info().Family) {
				t.Errorf("%s: %d elements differ", rows[i].Name, rows[i].Different)
			}
		}
	})
}

// rounded reports norms that are stored as weight+1: in float32 that rounds by at most half
// an ulp of a number below 8.
func rounded(row *compare.Tensor, name string) bool {
	at := slices.IndexFunc(families, func(f family) bool { return f.hf == name })
	if strings.HasSuffix(row.Name, "A_log") { // stored as -exp
		return row.MaxAbs <= 0x1p-23
	}
	return at >= 0 && families[at].plusOne && strings.Contains(row.Name, "layernorm") && row.MaxAbs <= 0x1p-22
}

// Claim: the tokenizer of a written file gives the ids that the folder's own gives, and where
// the two differ those of llama.cpp. Source: golden/gguf, samples.
func TestTokenizerIsCarried(t *testing.T) {
	eachCase(t, func(t *testing.T, c *goldenCase) {
		path := c.write(t, "q8_0")
		src, err := Open(path, checkpoint.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		config := src.Info().Tokenizer
		config.NoSpecial = true
		tok, err := tokenizer.FromConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range c.Samples {
			got, err := tok.Encode(s.Text)
			if err != nil || !slices.Equal(got, s.IDs) && !slices.Equal(got, c.LlamaCppIDs[i]) {
				t.Errorf("%q: %v, %v, want %v or %v", s.Text, got, err, s.IDs, c.LlamaCppIDs[i])
			}
		}
	})
}

// Claim: a type that cannot be written, a family without architecture and a file that
// exists are refused, and nothing is left.
func TestWriteRefuses(t *testing.T) {
	dir := golden.Dir(t, "gguf", "gpt2", "hf")
	src, err := hf.OpenSource(dir, checkpoint.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	out := t.TempDir()
	for _, c := range []struct {
		path string
		o    checkpoint.WriteOptions
		says string
	}{
		{filepath.Join(out, "x.gguf"), checkpoint.WriteOptions{Quantization: "q4_k"}, "q4_k"},
		{filepath.Join(out, "x.gguf"), checkpoint.WriteOptions{Family: "gpt_neo"}, "gpt_neo"},
		{out, checkpoint.WriteOptions{}, "already exists"},
	} {
		_, err := Write(context.Background(), c.path, src, c.o)
		if exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
	if left, _ := os.ReadDir(out); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

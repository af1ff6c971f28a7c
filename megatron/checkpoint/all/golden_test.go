package all

import (
	"encoding/json"

	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/golden"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
)

// goldenCase is a case of golden/checkpoint.
type goldenCase struct {
	Case, Format, Family string
	WeightsDType         string `json:"weights_dtype"`
	Iteration            int64
	Optimizer            any

	dir string
}

// truth is the Hugging Face case that holds a family's f32 weights; of
// gpt2-nobias only nanoGPT wrote any.
var truth = map[string]string{"gpt2": "gpt2-hf-f32", "gpt2-l4": "gpt2-l4-hf", "llama": "llama-hf-f32", "qwen2": "qwen2-hf-f32", "mixtral": "mixtral-hf-f32", "qwen2-moe": "qwen2-moe-hf-f32",
	"gpt2-nobias": "gpt2-nobias-nanogpt"}

func cases(t *testing.T, keep func(goldenCase) bool) []goldenCase {
	root := golden.Dir(t, "checkpoint")
	folders, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var list []goldenCase
	for _, f := range folders {
		text, err := os.ReadFile(filepath.Join(root, f.Name(), "case.json"))
		if err != nil {
			continue
		}
		c := goldenCase{dir: filepath.Join(root, f.Name())}
		if json.Unmarshal(text, &c) == nil && c.Family != "" && keep(c) {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		t.Fatal("no case")
	}
	return list
}

func open(t *testing.T, path string) checkpoint.Source {
	t.Helper()
	src, err := Open(path, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	})
	return src
}

// weights are a family's values by our names, from its Hugging Face folder.
func weights(t *testing.T, family string) map[string][]float32 {
	t.Helper()
	root := golden.Dir(t, "checkpoint")
	src := open(t, filepath.Join(root, truth[family]))
	m := map[string][]float32{}
	for _, x := range src.Tensors() {
		if name, ok := strings.CutPrefix(x.Name, checkpoint.Model); ok {
			values, err := checkpoint.ReadFloat32(src, x)
			if err != nil {
				t.Fatal(err)
			}
			m[name] = values
		}
	}
	return m
}

// rounded is v as dtype keeps it.
func rounded(v float32, dtype string) float32 {
	switch dtype {
	case "BF16":
		return math.Float32frombits(uint32(safetensors.ToBF16(v)) << 16)
	case "F16":
		return safetensors.FromF16(safetensors.ToF16(v))
	}
	return v
}

// expect checks every tensor of src against the family's weights: values
// rounded to their type, main parameters exact, moments by the corpus' rule.
func expect(t *testing.T, src checkpoint.Source, want map[string][]float32, optimizer bool) {
	t.Helper()
	if err := checkpoint.Check(src); err != nil {
		t.Error(err)
	}
	seen := map[string]int{}
	for _, x := range src.Tensors() {
		prefix, name := checkpoint.Model, ""
		for _, p := range []string{checkpoint.Model, checkpoint.Main, checkpoint.ExpAvg, checkpoint.ExpSq} {
			if rest, ok := strings.CutPrefix(x.Name, p); ok {
				prefix, name = p, rest
			}
		}
		seen[prefix]++
		values, err := checkpoint.ReadFloat32(src, x)
		if err != nil {
			t.Error(err)
			continue
		}
		w := want[name]
		if len(w) != len(values) {
			t.Errorf("%s has %d values, the family %d", x.Name, len(values), len(w))
			continue
		}
		for i, v := range values {
			exact := rounded(w[i], x.DType)
			switch prefix {
			case checkpoint.ExpAvg:
				exact = w[i] * (1.0 / 32)
			case checkpoint.ExpSq:
				exact = w[i] * w[i] * (1.0 / 4096)
			}
			if math.Float32bits(v) != math.Float32bits(exact) {
				t.Errorf("%s: element %d is %v, want %v", x.Name, i, v, exact)
				break
			}
		}
	}
	if seen[checkpoint.Model] != len(want) {
		t.Errorf("%d tensors of %d", seen[checkpoint.Model], len(want))
	}
	if optimizer && (seen[checkpoint.ExpAvg] != len(want) || seen[checkpoint.ExpSq] != len(want)) {
		t.Errorf("%d first and %d second moments of %d", seen[checkpoint.ExpAvg], seen[checkpoint.ExpSq], len(want))
	}
}

// Every golden case of every format, read as it is: each number equals the
// family's, bit for bit where the type keeps it.
func TestEveryGoldenCase(t *testing.T) {
	for _, c := range cases(t, func(goldenCase) bool { return true }) {
		t.Run(c.Case, func(t *testing.T) {
			f, err := checkpoint.Detect(c.dir)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := table[f]; !ok {
				t.Fatalf("format %s is not read", f)
			}
			src := open(t, c.dir)
			if got := string(src.Info().Format); !strings.HasPrefix(strings.TrimPrefix(strings.ReplaceAll(c.Format, ".", ""), "megatron-"), got) {
				t.Errorf("read as %s, it is %s", src.Info().Format, c.Format)
			}
			_, adam := c.Optimizer.(map[string]any)
			expect(t, src, weights(t, c.Family), adam && strings.HasPrefix(c.Format, "megatron"))
			if n := src.State().Iteration; n != c.Iteration && strings.HasPrefix(c.Format, "megatron") {
				t.Errorf("iteration %d, want %d", n, c.Iteration)
			}
		})
	}
}

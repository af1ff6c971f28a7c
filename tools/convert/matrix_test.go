package convert

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/csrc/ref"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/inference"
)

// layouts to write Megatron's formats for: every way of cutting that a family of
// two layers, four heads and two groups has.
var layouts = map[checkpoint.Format][]string{
	checkpoint.MegatronTorch:     {"--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2", "--make-vocab-size-divisible-by", "8"},
	checkpoint.MegatronTorchDist: {"--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2", "--make-vocab-size-divisible-by", "8"},
}

var gptOnly = []checkpoint.Format{checkpoint.NanoGPT, checkpoint.LLMC}

// TestMatrix: each family goes from every format to every other and back to
// Hugging Face's. All weights are bit-equal to the start's on each stop, and each
// format's logits of the case's prompt are within the case's tolerance. The
// matrix is printed.
func TestMatrix(t *testing.T) {
	root := shared(t)
	for _, name := range []string{"gpt2-hf-f32", "gpt2-hf-bf16", "gpt2-hf-f16", "gpt2-l4-hf", "llama-hf-f32", "llama-hf-bf16-sharded-v4", "qwen2-hf-f32", "mixtral-hf-f32"} {
		t.Run(name, func(t *testing.T) {
			list := []checkpoint.Format{checkpoint.HF, checkpoint.Native, checkpoint.MegatronTorch, checkpoint.MegatronTorchDist}
			if strings.HasPrefix(name, "gpt2") {
				list = append(list, gptOnly...)
			}
			if name == "gpt2-hf-f16" {
				list = list[:len(list)-1] // llm.c has no f16
			}
			if strings.HasSuffix(name, "-f32") {
				list = append(list, checkpoint.GGUF) // where norms are F32 whatever the type
			}
			m := matrix{t: t, start: filepath.Join(root, name), dir: t.TempDir(), list: list}
			m.run()
		})
	}
}

type matrix struct {
	t     *testing.T
	start string // golden case in Hugging Face's format
	dir   string
	list  []checkpoint.Format
}

func (m *matrix) run() {
	first := map[checkpoint.Format]string{}
	var out strings.Builder
	fmt.Fprintf(&out, "%-20s", "from \\ to")
	for _, f := range m.list {
		first[f] = m.convert(m.start, f, "first-"+string(f))
		fmt.Fprintf(&out, " %-19s", f)
	}
	out.WriteString("  logits\n")
	for _, from := range m.list {
		fmt.Fprintf(&out, "%-20s", from)
		for _, to := range m.list {
			there := m.convert(first[from], to, fmt.Sprintf("%s-%s", from, to))
			back := m.convert(there, checkpoint.HF, fmt.Sprintf("%s-%s-back", from, to))
			cell := "equal"
			if !sameWeights(m.t, m.start, there) || !sameWeights(m.t, m.start, back) {
				cell = "DIFFERENT"
				m.t.Errorf("%s to %s: weights differ", from, to)
			}
			fmt.Fprintf(&out, " %-19s", cell)
		}
		fmt.Fprintf(&out, "  %s\n", m.logits(first[from]))
	}
	m.t.Logf("\n%s", out.String())
}

func (m *matrix) convert(from string, to checkpoint.Format, name string) string {
	args := []string{"--input", from, "--to", string(to), "--output", filepath.Join(m.dir, name)}
	return convert(m.t, append(args, layouts[to]...)...)
}

// logits is the largest difference from the case's, which must be within its
// tolerance.
func (m *matrix) logits(path string) string {
	src, err := all.Open(path, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		m.t.Fatal(err)
	}
	defer src.Close()
	var c struct {
		Prompt   []int32
		Expected struct {
			Tolerance float64 `json:"tolerance_f32"`
		}
	}
	raw, err := os.ReadFile(filepath.Join(m.start, "case.json"))
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	f, err := safetensors.Open(filepath.Join(m.start, "expected.safetensors"))
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	want, err := f.Float64("logits")
	if err != nil {
		m.t.Fatal(err)
	}
	d := ref.Open()
	defer d.Arena.Close()
	model, err := inference.FromSource(d, src, inference.LoadOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	worst := 0.0
	err = model.Logits(c.Prompt, func(p int, logits []float32) error {
		for i, v := range logits {
			worst = math.Max(worst, math.Abs(float64(v)-want[p*len(logits)+i]))
		}
		return nil
	})
	if err != nil || !(worst <= c.Expected.Tolerance) {
		m.t.Errorf("%s: logits differ by %g, %g is allowed; %v", path, worst, c.Expected.Tolerance, err)
	}
	return fmt.Sprintf("%.1e of %.0e", worst, c.Expected.Tolerance)
}

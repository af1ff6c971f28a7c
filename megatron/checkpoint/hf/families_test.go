package hf

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"monotron/internal/golden"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
)

// familyCases are golden models of families with a row.
var familyCases = []string{"granite", "gemma2", "gemma3", "olmo3", "exaone4", "seed-oss", "hunyuan", "ernie4-5", "minimax-m2", "qwen3-next", "lfm2", "cohere", "falcon-7b", "falcon-new",
	"falcon-rw", "opt", "opt-post-norm", "llama4-text-dense", "gpt-oss", "gpt-oss-dense", "gpt-oss-moe", "phi3-longrope"}

// caseFolder is a case of a folder of cases as a folder of Hugging Face.
func caseFolder(t *testing.T, cases, name string) string {
	t.Helper()
	from, to := filepath.Join(cases, name), t.TempDir()
	for file, as := range map[string]string{ConfigName: ConfigName, "weights.safetensors": safetensors.SingleName} {
		raw, err := os.ReadFile(filepath.Join(from, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, as), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// Claim: a folder of each family that is read and written again has every tensor under the
// same name with the same bytes, and a config.json that says the same model. Source of the
// folders: transformers' save_pretrained (golden/model).
func TestFamiliesWriteWhatTheyRead(t *testing.T) {
	for _, name := range golden.AtHand(t, familyCases) {
		t.Run(name, func(t *testing.T) {
			dir := caseFolder(t, golden.Dir(t, "model"), name)
			src, err := OpenSource(dir, checkpoint.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			out := filepath.Join(t.TempDir(), "out")
			if _, err := Write(t.Context(), out, src, checkpoint.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			before, err := ReadConfig(filepath.Join(dir, ConfigName))
			if err != nil {
				t.Fatal(err)
			}
			after, err := ReadConfig(filepath.Join(out, ConfigName))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("the model changed: %s", diff)
			}
			sameTensors(t, filepath.Join(dir, safetensors.SingleName), filepath.Join(out, safetensors.SingleName))
		})
	}
}

// sameTensors compares names, shapes, types and bytes.
func sameTensors(t *testing.T, before, after string) {
	t.Helper()
	a, b := openFile(t, before), openFile(t, after)
	if x, y := slices.Sorted(slices.Values(a.Names())), slices.Sorted(slices.Values(b.Names())); !slices.Equal(x, y) {
		t.Fatalf("tensors %v became %v", x, y)
	}
	for _, name := range a.Names() {
		x, _ := a.Info(name)
		y, _ := b.Info(name)
		one, two := make([]byte, x.Bytes), make([]byte, y.Bytes)
		if err := a.ReadAt(name, one, 0); err != nil {
			t.Fatal(err)
		}
		if err := b.ReadAt(name, two, 0); err != nil {
			t.Fatal(err)
		}
		if x.DType != y.DType || !slices.Equal(x.Shape, y.Shape) || !slices.Equal(one, two) {
			t.Errorf("%s is not the same", name)
		}
	}
}

// Claim: a key that no code here reads is refused, and so is a rule of RoPE with a key of
// another rule's.
func TestFamiliesRefuseWhatTheyDoNotUnderstand(t *testing.T) {
	for _, name := range golden.AtHand(t, []string{"granite", "gemma2", "gemma3", "gpt-oss-moe", "cohere"}) {
		raw, err := os.ReadFile(filepath.Join(golden.Dir(t, "model"), name, ConfigName))
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range map[string]any{"attention_gate_factor": 2, "rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 1e4, "twist": 3}, "rope_scaling": map[string]any{"rope_type": "spiral"}} {
			var config map[string]any
			if err := json.Unmarshal(raw, &config); err != nil {
				t.Fatal(err)
			}
			delete(config, "rope_parameters")
			config[key] = value
			text, err := json.Marshal(config)
			if err != nil {
				t.Fatal(err)
			}
			if c, err := ParseConfig("config.json", text); err == nil {
				t.Errorf("%s with %s: read as %+v", name, key, c.Model)
			}
		}
	}
}

// Claim (docs/models.md): the table says of a family that Muon and Megatron's formats refuse it where they do, and
// of no other.
func TestFamiliesSayWhatRefusesThem(t *testing.T) {
	dirs := []string{}
	for _, name := range golden.AtHand(t, familyCases) {
		dirs = append(dirs, filepath.Join(golden.Dir(t, "model"), name))
	}
	for _, name := range []string{"qwen3-5", "qwen3-5-moe", "gemma4", "gemma4-small", "gemma4-experts", "ministral3", "granite4-h", "granite4-h-experts", "nemotron-h", "nemotron3-experts", "nemotron3-latent", "mamba2"} {
		dirs = append(dirs, filepath.Join(ownCases, name))
	}
	for _, dir := range dirs {
		c, err := ReadConfig(filepath.Join(dir, ConfigName))
		if err != nil {
			t.Fatal(err)
		}
		refused := c.Model.LayersDiffer() || c.Model.KeepsState() // arguments' deriveMuon and megatron.NewTarget
		if says := strings.Contains(rows[c.Family].refused, "Muon and Megatron's formats"); says != refused {
			t.Errorf("%s: refused %v, its row says %q", dir, refused, rows[c.Family].refused)
		}
	}
}

var update = flag.Bool("update", false, "rewrite the table of docs/models.md")

// Claim: the table of docs/models.md is the table of families.
func TestModelsDocument(t *testing.T) {
	const file, from, to = "../../../docs/models.md", "<!-- families -->\n", "<!-- end -->"
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), from)
	_, after, ends := strings.Cut(rest, to)
	if !ok || !ends {
		t.Fatalf("%s has no %q and %q", file, from, to)
	}
	want := before + from + Markdown() + to + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(raw) != want {
		t.Errorf("%s is not the table; run go test ./megatron/checkpoint/hf -run TestModelsDocument -update", file)
	}
}

package modelcase

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/csrc/cpu"
	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/drawn"
	"monotron/internal/exitcode"
	"monotron/internal/golden"
	"monotron/internal/safetensors"
)

// goldenCases is the folder of model cases.
func goldenCases(t *testing.T) string {
	t.Helper()
	return golden.Dir(t, "model")
}

func openRef() (*device.Device, error) { return ref.Open(), nil }

// some is the cases of a list that a test takes: with -short, for plain Go, a fourth, which SEED draws.
func some(t *testing.T, names []string) []string {
	t.Helper()
	if !testing.Short() {
		return names
	}
	return drawn.Some(t, names, (len(names)+3)/4)
}

// check runs a case on the oracle; least guards against comparing nothing.
func check(t *testing.T, dir string, least int) {
	t.Helper()
	checkOn(t, dir, openRef, least)
}

func checkOn(t *testing.T, dir string, open func() (*device.Device, error), least int) {
	t.Helper()
	r, err := Run(dir, open, Options{})
	if err != nil {
		t.Fatal(err)
	}
	judge(t, r, least)
}

// judge fails on numbers over their tolerance, and where fewer than `least` are within.
func judge(t *testing.T, r *Report, least int) {
	t.Helper()
	passed, failed := r.Counts()
	if failed > 0 || passed < least {
		var table strings.Builder
		if err := r.WriteTable(&table, false); err != nil {
			t.Fatal(err)
		}
		t.Errorf("%d passed, %d failed; at least %d must pass\n%s", passed, failed, least, table.String())
	}
	w := r.Worst()
	t.Logf("%d numbers, worst %s: %.3g of %g", passed, w.Name, w.Error, w.Tolerance)
}

// Claim: forward, every gradient, the optimizer's curve, masks, accumulation,
// flags, generation and tables agree with transformers 5.23 and Megatron-LM
// d98e8a64 (golden/model, every case of one rank and a dense model).
func TestGoldenCases(t *testing.T) {
	dir := goldenCases(t)
	wanted := map[string]int{
		"gpt2-tanh": 151, "gpt2-erf": 95, "gpt2-padded-vocab": 125, "llama": 186, "llama-base-500k": 128, "llama-rope-scaled": 28,
		"qwen2": 119, "bloom": 154, "packing-gpt2": 52, "packing-llama": 63, "accumulation": 147, "flag-variants-gpt2-tanh": 20,
		"flag-variants-llama": 56, "generation-gpt2": 28, "generation-llama": 28,
		"schedules": 973, "batch-size": 113, "loss-scale": 139, "pipeline-orders": 96, "rope": 240,
	}
	for _, name := range some(t, slices.Sorted(maps.Keys(wanted))) {
		t.Run(name, func(t *testing.T) { check(t, filepath.Join(dir, name), wanted[name]) })
	}
}

// Claim: forward, every gradient, ten steps and greedy generation of further families agree
// with transformers 5.23 and 5.24 in float64, on both devices.
func TestGoldenFamilies(t *testing.T) {
	dir := goldenCases(t)
	wanted := map[string]int{
		"granite": 111, "gemma2": 119, "gemma3": 154, "olmo3": 134, "exaone4": 134, "seed-oss": 106, "hunyuan": 101, "ernie4-5": 93, "cohere": 107,
		"falcon-7b": 101, "falcon-new": 109, "falcon-rw": 125, "opt": 135, "opt-post-norm": 131, "phi3-longrope": 101, "llama4-text-dense": 116,
		"gpt-oss-dense": 130, "lfm2": 100, "gpt-oss-moe": 134, "deepseek-v2-lite": 100, "deepseek-v2-groups": 110, "deepseek-v3": 151,
	}
	for _, name := range some(t, golden.AtHand(t, slices.Sorted(maps.Keys(wanted)))) {
		least := wanted[name]
		kinds := map[string]func() (*device.Device, error){"ref": openRef}
		if d, err := cpu.Open(); err == nil { // not without cgo
			d.Close()
			kinds["cpu"] = cpu.Open
		}
		for kind, open := range kinds {
			t.Run(name+"/"+kind, func(t *testing.T) { checkOn(t, filepath.Join(dir, name), open, least) })
		}
	}
}

// Claim: the same for the cases that travel with the repository.
func TestTinyCases(t *testing.T) {
	check(t, "testdata/gpt2-tanh", 100)
	check(t, "testdata/qwen2", 86)
	check(t, "testdata/qwen3-5", 51)
	check(t, "testdata/qwen3-5-moe", 70)
	check(t, "testdata/gemma4", 47)
	check(t, "testdata/gemma4-small", 83)
	check(t, "testdata/gemma4-experts", 63)
	check(t, "testdata/ministral3", 30)
	check(t, "testdata/granite4-h", 54)
	check(t, "testdata/granite4-h-experts", 51)
	check(t, "testdata/nemotron-h", 50)
	check(t, "testdata/nemotron3-experts", 50)
	check(t, "testdata/nemotron3-latent", 54)
	check(t, "testdata/mamba2", 41)
	check(t, "testdata/megatron-gpt2-tp2-pp2-sp", 157)
	check(t, "testdata/megatron-gpt2-dp2-zero1", 149)
}

// Claim: a case's numbers do not depend on how data-parallel ranks share the
// optimizer, gradients and parameters, nor on when updated values arrive.
func TestShardedCase(t *testing.T) {
	const zero1 = "--use-distributed-optimizer"
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "megatron-gpt2-dp2-zero1")
	text, err := os.ReadFile(filepath.Join(dir, "case.json"))
	if err != nil || strings.Count(string(text), zero1) != 1 {
		t.Fatalf("%v: %s is in the case %d times", err, zero1, strings.Count(string(text), zero1))
	}
	for _, flags := range []string{zero1 + " --overlap-grad-reduce --overlap-param-gather", "--use-megatron-fsdp", "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads"} {
		t.Run(flags, func(t *testing.T) {
			changed := strings.Replace(string(text), zero1, flags, 1)
			if err := os.WriteFile(filepath.Join(dir, "case.json"), []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			check(t, dir, 149)
		})
	}
}

// Claim: every parallel layout of golden/model of a dense model gives Megatron's
// losses, gradients, curve, order of a step, and each rank's parameters and shards,
// on both devices.
func TestGoldenLayouts(t *testing.T) {
	dir := goldenCases(t)
	wanted := map[string]int{
		"gpt2-tp1": 224, "gpt2-tp2": 310, "gpt2-tp2-sp": 197, "llama-tp4": 380, "llama-tp2-sp": 337, "gpt2-pp2": 170, "llama-pp2-vp2": 201,
		"llama-pp2-uneven": 201, "llama-pp4": 207, "gpt2-tp2-pp2-sp": 205, "gpt2-dp2-zero1": 197,
	}
	for _, name := range some(t, slices.Sorted(maps.Keys(wanted))) {
		least := wanted[name]
		t.Run(name, func(t *testing.T) {
			checkOn(t, filepath.Join(dir, "megatron-"+name), openRef, least)
			if d, err := cpu.Open(); err == nil {
				d.Arena.Close()
				checkOn(t, filepath.Join(dir, "megatron-"+name), cpu.Open, least)
			}
		})
	}
}

// Claim: Muon's curves are Megatron's, on one rank and in every layout of golden/model, on both
// devices.
func TestGoldenMuon(t *testing.T) {
	dir := goldenCases(t)
	wanted := map[string]int{
		"muon-llama": 62, "muon-llama-whole-qkv": 58, "muon-moe": 130, "megatron-muon-llama-pp2": 79, "megatron-muon-llama-tp2-blockwise": 94,
		"megatron-muon-llama-tp2-sp": 94, "megatron-muon-moe-ep2": 206, "megatron-muon-moe-tp2-sp-ep2-etp1": 206,
	}
	for _, name := range some(t, slices.Sorted(maps.Keys(wanted))) {
		least := wanted[name]
		t.Run(name, func(t *testing.T) {
			checkOn(t, filepath.Join(dir, name), openRef, least)
			if d, err := cpu.Open(); err == nil {
				d.Arena.Close()
				checkOn(t, filepath.Join(dir, name), cpu.Open, least)
			}
		})
	}
}

// Claim: six steps of matrices of many shapes, of gradients of zero and of 1e-9, are those of NVIDIA's
// Emerging-Optimizers fd77292 and torch.optim.Muon 2.15 in float64, with every set of coefficients, scale and way to
// split; and so are two curves of a model, on both devices.
func TestGoldenMuonSteps(t *testing.T) {
	dir := golden.Dir(t, "muon")
	checkOn(t, dir, openRef, 193)
	if d, err := cpu.Open(); err == nil {
		d.Arena.Close()
		checkOn(t, dir, cpu.Open, 193)
	}
	r, err := Run(dir, openRef, Options{Only: "polar-express-5"})
	if err != nil || len(r.Checks) != 12 {
		t.Errorf("one variant has %d numbers, %v", len(r.Checks), err)
	}
}

// Claim: a run of the command is not a case of a model, and says so in one line.
func TestARunOfTheCommandIsNotAModelCase(t *testing.T) {
	_, err := Run(filepath.Join(goldenCases(t), "pretrain-gpt2"), openRef, Options{})
	if exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "pretrain_gpt") || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
}

// copyCase copies the GPT-2 case to a folder of its own.
func copyCase(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/gpt2-tanh")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// edit changes bytes of a file of the case.
func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(raw), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Claim: one element of one tensor that is off by more than the tolerance, or
// not a number, fails that tensor and no other.
func TestAWrongElementFails(t *testing.T) {
	for _, name := range []string{"token_loss", "hidden.1", "grad.transformer.ln_f.bias", "param_after_10.transformer.h.0.ln_1.weight"} {
		for _, wrong := range []float32{1e3, float32(math.NaN())} {
			dir := copyCase(t)
			path := filepath.Join(dir, "expected.safetensors")
			f, err := safetensors.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			info, _ := f.Info(name)
			edit(t, path, func(raw []byte) []byte {
				copy(raw[info.Offset:], floatBytes(wrong))
				return raw
			})
			r, err := Run(dir, openRef, Options{})
			if err != nil {
				t.Fatal(err)
			}
			failed := slices.DeleteFunc(slices.Clone(r.Checks), func(c Check) bool { return c.OK })
			if len(failed) != 1 || failed[0].Name != name {
				t.Errorf("%s spoiled with %v: failed are %v", name, wrong, failed)
			}
		}
	}
}

func floatBytes(x float32) []byte {
	b := math.Float32bits(x)
	return []byte{byte(b), byte(b >> 8), byte(b >> 16), byte(b >> 24)}
}

// Claim: a case with a part missing or malformed is one clear error with its code.
func TestBadCases(t *testing.T) {
	replace := func(old, new string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, "case.json"), func(raw []byte) []byte {
				if !strings.Contains(string(raw), old) {
					t.Fatalf("case.json has no %q", old)
				}
				return []byte(strings.Replace(string(raw), old, new, 1))
			})
		}
	}
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		spoil func(*testing.T, string)
		code  exitcode.Code
		says  string
	}{
		"no case.json":     {remove("case.json"), exitcode.NoInput, "case.json"},
		"no weights":       {remove("weights.safetensors"), exitcode.NoInput, "weights.safetensors"},
		"no batches":       {remove("batches.safetensors"), exitcode.NoInput, "batches.safetensors"},
		"no expectation":   {remove("expected.safetensors"), exitcode.NoInput, "expected.safetensors"},
		"not JSON":         {replace("{", "["), exitcode.BadData, "case.json"},
		"wrong type":       {replace(`"name": "gpt2-tanh"`, `"name": 3`), exitcode.BadData, "case.json"},
		"no tolerance":     {replace("token_loss_abs", "token_loss"), exitcode.BadData, "token_loss_abs"},
		"bad exclusion":    {replace("[32:64]", "[32:640]"), exitcode.BadData, "exclude_from_param_comparison"},
		"unknown flag":     {replace("--num-layers", "--num-layer"), exitcode.Usage, "--num-layers"},
		"other shape":      {replace("--hidden-size 32", "--hidden-size 64"), exitcode.BadData, "shape"},
		"too many steps":   {replace("[\n   {\n    \"iteration\": 1,", "[{}, {}, {\n    \"iteration\": 1,"), exitcode.BadData, "14 iterations"},
		"small vocabulary": {replace("--vocab-size 132", "--vocab-size 131"), exitcode.BadData, "shape"},
		"huge model":       {replace("--num-layers 2", "--num-layers 20000"), exitcode.BadData, "too large"},
		"long sequences":   {replace("--seq-length 16", "--seq-length 8"), exitcode.BadData, "from 1 to 8"},
		"cut weights": {func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, "weights.safetensors"), func(raw []byte) []byte { return raw[:len(raw)-8] })
		}, exitcode.BadData, "weights.safetensors"},
		"unknown tensor": {func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, "expected.safetensors"), func(raw []byte) []byte {
				return []byte(strings.Replace(string(raw), "token_loss", "taken_loss", 1))
			})
		}, exitcode.BadData, "taken_loss"},
	} {
		dir := copyCase(t)
		c.spoil(t, dir)
		_, err := Run(dir, openRef, Options{})
		if exitcode.CodeOf(err) != c.code || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: code %d, %v", name, exitcode.CodeOf(err), err)
		}
	}
}

// Claim: a layout whose ranks, shards or flags do not fit is one clear error, and a
// rank's shape that differs fails that number alone.
func TestBadLayouts(t *testing.T) {
	for name, c := range map[string]struct {
		old, new string
		code     exitcode.Code
		says     string
	}{
		"no such world":  {`"world_size": 4`, `"world_size": 3`, exitcode.Usage, "3 ranks"},
		"a crowd":        {`"world_size": 4`, `"world_size": 4096`, exitcode.Usage, "1024 data-parallel ranks"},
		"heads":          {"--num-attention-heads 4", "--num-attention-heads 3", exitcode.Usage, "--num-attention-heads 3"},
		"fewer rows":     {"--global-batch-size 4", "--global-batch-size 2", exitcode.BadData, "a batch has 4 rows"},
		"another rank":   {`"tp": 1,`, `"tp": 7,`, exitcode.Done, "place"},
		"other shape":    {`"shape": [66, 32]`, `"shape": [67, 32]`, exitcode.Done, "embedding.word_embeddings.weight shape"},
		"order":          {`"F0 F1 B0 F2 B1 F3 B2 B3"`, `"F0 F1 B1 F2 B0 F3 B2 B3"`, exitcode.Done, "order of a step"},
		"unknown tensor": {`"embedding.position_embeddings.weight": {`, `"embedding.positions.weight": {`, exitcode.Done, "parameters in order"},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS("testdata")); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "megatron-gpt2-tp2-pp2-sp")
		edit(t, filepath.Join(path, "case.json"), func(raw []byte) []byte {
			if !strings.Contains(string(raw), c.old) {
				t.Fatalf("case.json has no %q", c.old)
			}
			return []byte(strings.Replace(string(raw), c.old, c.new, 1))
		})
		r, err := Run(path, openRef, Options{})
		if c.code != exitcode.Done {
			if exitcode.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: code %d, %v", name, exitcode.CodeOf(err), err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		failed := slices.DeleteFunc(slices.Clone(r.Checks), func(c Check) bool { return c.OK })
		if len(failed) == 0 || len(failed) > 2 || !slices.ContainsFunc(failed, func(f Check) bool { return f.Name == c.says }) {
			t.Errorf("%s: failed are %v, want %s", name, failed, c.says)
		}
	}
}

// Claim: an index written as Python's selects the elements Python selects.
func TestExcludedElements(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want []int
	}{
		{"[2:4]", 6, []int{2, 3}},
		{"[5]", 6, []int{5}},
		{"[:2]", 4, []int{0, 1}},
		{"reshaped [2, 3, -1]: [:, 1]", 12, []int{2, 3, 8, 9}},
		{"reshaped [2, 3]: [1, 0:2]", 6, []int{3, 4}},
	} {
		marks, err := elements(c.text, c.n)
		var got []int
		for i, on := range marks {
			if on {
				got = append(got, i)
			}
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s of %d: %v, %v; want %v", c.text, c.n, got, err, c.want)
		}
	}
	for _, text := range []string{"", "[", "[a]", "[3:2]", "[0:9]", "[-1]", "[0, 0]", "reshaped [4]: [0]", "reshaped [0, -1]: [0]", "reshaped [2, 3]", "reshaped [-1, -1]: [0]"} {
		if marks, err := elements(text, 6); err == nil {
			t.Errorf("%q of 6 selects %v", text, marks)
		}
	}
}

// Claim: the JSON report is valid whatever the errors are, and counts what it lists.
func TestReportJSON(t *testing.T) {
	r := &Report{Case: "c", Device: "d"}
	r.within("g", "nan", []float64{math.NaN()}, []float64{1}, 1)
	r.within("g", "length", []float64{1}, []float64{1, 2}, 1)
	r.byNorm("g", "norm", []float64{3, 4}, []float64{3, 4.5}, 0.1)
	r.relative("g", "zero", 0, 0, 0)
	var out strings.Builder
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var back struct{ Passed, Failed int }
	if err := json.Unmarshal([]byte(out.String()), &back); err != nil || back.Passed != 2 || back.Failed != 2 {
		t.Errorf("%+v, %v: %s", back, err, out.String())
	}
	if w := r.Worst(); w.OK {
		t.Errorf("the worst is %+v", w)
	}
}

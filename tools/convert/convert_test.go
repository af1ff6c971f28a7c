package convert

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/internal/golden"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/compare"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
)

// shared is the folder of checkpoint cases.
func shared(t *testing.T) string {
	t.Helper()
	return golden.Dir(t, "checkpoint")
}

// tiny is a GPT-2 of transformers that lives in the repository.
const tiny = "../../megatron/checkpoint/hf/testdata/gpt2-tiny"

// call runs the command and returns what it printed.
func call(args ...string) (stdout, notes string, err error) {
	var out, errs bytes.Buffer
	open := func(string) (*device.Device, error) { return ref.Open(), nil }
	app := &cli.App{Writer: &out, ErrWriter: &errs, Commands: []*cli.Command{Command(open)}, ExitErrHandler: func(*cli.Context, error) {}}
	err = app.Run(append([]string{"monotron", "convert"}, args...))
	return out.String(), errs.String(), err
}

// convert runs the command and fails the test on an error.
func convert(t testing.TB, args ...string) (path string) {
	t.Helper()
	out, notes, err := call(args...)
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, notes)
	}
	return strings.TrimSpace(out)
}

// sameWeights compares all values of two checkpoints bit for bit.
func sameWeights(t *testing.T, a, b string) bool {
	t.Helper()
	x, err := all.Open(a, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	y, err := all.Open(b, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer y.Close()
	rows, err := compare.Tensors(checkpoint.WeightsOnly(x), checkpoint.WeightsOnly(y), compare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	same := len(rows) > 0
	for i := range rows {
		same = same && rows[i].Equal() && rows[i].DTypeA == rows[i].DTypeB
	}
	return same
}

// The path of the result goes to standard output, --verify says what it proved,
// and the output's weights are the input's.
func TestConvertVerifies(t *testing.T) {
	out := filepath.Join(t.TempDir(), "deep", "out")
	stdout, notes, err := call("--input", tiny, "--to", "nanogpt", "--output", out, "--verify")
	if err != nil || strings.TrimSpace(stdout) != out {
		t.Fatalf("%v, printed %q\n%s", err, stdout, notes)
	}
	for _, say := range []string{"weights are bit-equal", "are equal", "erf"} {
		if !strings.Contains(notes, say) {
			t.Errorf("the notes do not say %q:\n%s", say, notes)
		}
	}
	if !sameWeights(t, tiny, out) {
		t.Error("weights differ")
	}
}

// Claim: the error for an output that differs names file, tensor, type, shape and the number of elements.
func TestUnequalOutputIsNamed(t *testing.T) {
	r := compare.Tensor{Name: "w", DTypeA: "F32", DTypeB: "BF16", ShapeA: []int64{2, 3}, ShapeB: []int64{2, 3}, Different: 5}
	want := "verification failed: out: tensor w (BF16[2 3]) has 5 elements that differ from those of the input (F32[2 3]); do not use the output"
	if err := unequal("out", &r); err.Error() != want || exitcode.CodeOf(err) != exitcode.Differs {
		t.Errorf("%v, want %s", err, want)
	}
}

// --dtype rounds the weights; with moments the f32 values remain as main parameters, and
// come back from them.
func TestDtypeKeepsMasters(t *testing.T) {
	dir := t.TempDir()
	start := filepath.Join(shared(t), "gpt2-nanogpt-compiled")
	narrow := convert(t, "--input", start, "--to", "native", "--output", filepath.Join(dir, "narrow"), "--dtype", "bf16")
	wide := convert(t, "--input", narrow, "--to", "native", "--output", filepath.Join(dir, "wide"), "--dtype", "f32")
	if sameWeights(t, start, narrow) || !sameWeights(t, start, wide) {
		t.Error("bf16 has the f32 weights, or they did not come back from the main parameters")
	}
	bare := convert(t, "--input", narrow, "--to", "hf", "--output", filepath.Join(dir, "bare"), "--weights-only", "--dtype", "f32")
	if sameWeights(t, start, bare) {
		t.Error("--weights-only took main parameters")
	}
}

// What is asked for and cannot be is an error with its code; nothing is left.
func TestConvertRefuses(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	for _, c := range []struct {
		args []string
		says string
		code exitcode.Code
	}{
		{[]string{"--to", "hf", "--output", out}, "--input is missing", exitcode.Usage},
		{[]string{"--input", tiny, "--to", "pickle", "--output", out}, "--to must be gguf, hf, llmc, nanogpt, native, torch or torch_dist, not pickle", exitcode.Usage},
		{[]string{"--input", tiny, "--to", "hf", "--output", out, "--dtype", "int4"}, "--dtype must be f32, bf16 or fp16, not int4", exitcode.Usage},
		{[]string{"--input", tiny, "--to", "hf", "--output", out, "--max-shard-size", "much"}, "500MB", exitcode.Usage},
		{[]string{"--input", tiny, "--to", "hf", "--output", out, "--tensor-model-parallel-size", "2"}, "--tensor-model-parallel-size needs --to torch or torch_dist, not hf", exitcode.Usage},
		{[]string{"--input", tiny, "--to", "hf", "--output", out, "--family", "llama"}, "llama", exitcode.Usage},
		{[]string{"--input", tiny, "--to", "llmc", "--output", out, "--dtype", "fp16"}, "--dtype", exitcode.Usage},
		{[]string{"--input", tiny, "--to", "hf", "--output", out, "--type", "q8_0"}, "--to gguf", exitcode.Usage},
		{[]string{"--input", tiny, "--to", "gguf", "--output", out, "--type", "q4_k"}, "q8_0", exitcode.Usage},
		{[]string{"--input", tiny, "--to", "gguf", "--output", out, "--type", "q8_0", "--verify"}, "--verify", exitcode.Usage},
		{[]string{"--input", tiny, "--to", "hf", "--output", out, "--ollama"}, "--ollama", exitcode.Usage},
		{[]string{"--input", filepath.Join(dir, "none"), "--to", "hf", "--output", out}, "does not exist", exitcode.NoInput},
		{[]string{"--input", dir, "--to", "hf", "--output", out}, "no checkpoint", exitcode.NoInput},
		{[]string{"--input", tiny, "--to", "hf", "--output", dir}, "exists", exitcode.Usage},
	} {
		_, _, err := call(c.args...)
		if err == nil || exitcode.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v (code %d); want code %d and %q", c.args, err, exitcode.CodeOf(err), c.code, c.says)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Claim (docs/checkpoints.md): --tokenizer must be a folder; where it has no tokenizer, a note names it. An unknown
// family is an error that names the nearest, for each format that has families.
func TestFamilyAndTokenizerFlags(t *testing.T) {
	dir := t.TempDir()
	file, empty := filepath.Join(dir, "tokenizer.json"), filepath.Join(dir, "empty")
	for _, err := range []error{os.WriteFile(file, []byte("{}"), 0o666), os.Mkdir(empty, 0o777)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		flags, says string
		code        exitcode.Code
	}{
		{"--to hf --tokenizer " + filepath.Join(dir, "none"), "the folder does not exist", exitcode.NoInput},
		{"--to gguf --tokenizer " + filepath.Join(dir, "none"), "the folder does not exist", exitcode.NoInput},
		{"--to hf --tokenizer " + file, "is a file; give its folder, " + dir, exitcode.Usage},
		{"--to native --tokenizer " + empty, "--tokenizer needs --to hf or gguf, not native", exitcode.Usage},
		{"--to torch --family llama", "--family needs --to hf or gguf, not torch", exitcode.Usage},
		{"--to hf --family lama", "--family lama is unknown; did you mean llama?", exitcode.Usage},
		{"--to gguf --family GPT-2", "--family GPT-2 is unknown; did you mean gpt2?", exitcode.Usage},
		{"--to hf --family qwen3_5", "did you mean qwen3_5_text?", exitcode.Usage},
		{"--to hf --family transformer", "--family transformer is unknown; the families are gpt2, ", exitcode.Usage},
		{"--to hf --family llama", "an MLP with a gate -> an ungated MLP (gelu_tanh)", exitcode.Usage},
	} {
		_, _, err := call(append(strings.Fields(c.flags), "--input", tiny, "--output", filepath.Join(dir, "out"))...)
		if err == nil || exitcode.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "geglu") {
			t.Errorf("%s: %v (code %d)", c.flags, err, exitcode.CodeOf(err))
		}
	}
	for _, to := range []string{"hf", "gguf"} {
		_, notes, err := call("--input", tiny, "--output", filepath.Join(dir, to), "--to", to, "--tokenizer", empty)
		if err != nil || !strings.Contains(notes, empty+" has n") {
			t.Errorf("%s: %v, notes %q", to, err, notes)
		}
	}
}

// Sizes of shards are read with their units.
func TestBytesOf(t *testing.T) {
	for text, want := range map[string]int64{"5GB": 5e9, "2GiB": 2 << 30, "500 mb": 5e8, "1000": 1000, "1.5KiB": 1536} {
		if got, err := bytesOf(text); err != nil || got != want {
			t.Errorf("%s is %d, %v; want %d", text, got, err, want)
		}
	}
}

// A folder of transformers comes back with its tokenizer, generation config and
// special ids.
func TestTokenizerIsCarried(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	if err := os.CopyFS(in, os.DirFS(tiny)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"tokenizer.json": "{}", "generation_config.json": `{"eos_token_id": 7}`} {
		if err := os.WriteFile(filepath.Join(in, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	out := convert(t, "--input", in, "--to", "hf", "--output", filepath.Join(dir, "out"), "--max-shard-size", "2000")
	names, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, e := range names {
		have = append(have, e.Name())
	}
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "model.safetensors.index.json"} {
		if !slices.Contains(have, name) {
			t.Errorf("%s is missing of %v", name, have)
		}
	}
	text, err := os.ReadFile(filepath.Join(out, "generation_config.json"))
	if err != nil || string(text) != `{"eos_token_id": 7}` {
		t.Errorf("generation config %q, %v", text, err)
	}
	if !sameWeights(t, in, out) {
		t.Error("weights differ")
	}
}

// Claim: --make-vocab-size-divisible-by says how many rows Megatron's formats
// hold: the vocabulary's ids up to a multiple of it times the tensor-parallel
// ranks, of 128 where nothing is said.
func TestVocabularyPadding(t *testing.T) {
	dir := t.TempDir()
	from := startState(t, dir)
	for _, f := range []checkpoint.Format{checkpoint.MegatronTorch, checkpoint.MegatronTorchDist} {
		for divisor, step := range map[string]int{"": 2 * 128, "1": 2, "6": 12} {
			to := filepath.Join(dir, string(f)+divisor)
			args := []string{"--input", from, "--to", string(f), "--output", to, "--tensor-model-parallel-size", "2"}
			if divisor != "" {
				args = append(args, "--make-vocab-size-divisible-by", divisor)
			}
			convert(t, args...)
			src, err := all.Open(to, checkpoint.OpenOptions{Step: -1, KeepPadding: true})
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			if m := src.Info().Model; m.PaddedVocabSize != spec.PadVocab(m.VocabSize, step, 1) {
				t.Errorf("%s, divisor %q: %d rows for %d ids, want a multiple of %d", f, divisor, m.PaddedVocabSize, m.VocabSize, step)
			}
		}
	}
}

// Claim (docs/checkpoints.md): --quantize needs --to hf and a dense model, and cannot be combined with
// --verify; what it writes opens again and differs from its input.
func TestQuantize(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	for _, c := range []struct{ flags, says string }{
		{"--to hf --quantize nf5", "--quantize must be nf4, int8 or mxfp4, not nf5"}, {"--to gguf --quantize nf4", "--quantize needs --to hf"}, {"--to hf --double-quant", "--double-quant needs --quantize nf4"},
		{"--to hf --quantize nf4 --verify", "compares bits"},
	} {
		if _, _, err := call(append(strings.Fields(c.flags), "--input", tiny, "--output", out)...); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.flags, err)
		}
	}
	if _, _, err := call("--to", "hf", "--quantize", "nf4", "--input", golden.Dir(t, "model", "olmoe"), "--output", out); exitcode.CodeOf(err) == exitcode.Done {
		t.Error("a mixture is quantised")
	}
	convert(t, "--to", "hf", "--quantize", "nf4", "--input", tiny, "--output", out)
	if sameWeights(t, tiny, out) {
		t.Error("nothing was rounded")
	}
	again := filepath.Join(t.TempDir(), "again")
	convert(t, "--to", "hf", "--input", out, "--output", again)
	if !sameWeights(t, out, again) {
		t.Error("the values of the codes are not those that are read")
	}
}

// Claim (docs/mtp.md): --mtp reads the layers of multi-token prediction of a Hugging Face folder, and families that have them get them back,
// bit for bit; without it they are left out.
func TestLayersOfMultiTokenPrediction(t *testing.T) {
	config, err := hf.ReadConfig("../verify/modelcase/testdata/qwen3-5/config.json")
	if err != nil {
		t.Fatal(err)
	}
	m := config.Model
	m.Delta.Layers[m.NumLayers-1], m.MTP, m.Context = false, &spec.MTP{Depths: 1, LossScale: 0.1}, 64
	sizes := map[string]int64{}
	for _, x := range checkpoint.Expected(m) {
		sizes[x.Name] = checkpoint.Volume(x.Shape)
	}
	from := filepath.Join(t.TempDir(), "from")
	err = hf.Export(from, m, func(global string) ([]float32, error) {
		values := make([]float32, sizes[global])
		for i := range values {
			values[i] = float32(math.Sin(float64(i + len(global))))
		}
		return values, nil
	}, hf.ExportOptions{Family: hf.Qwen35})
	if err != nil {
		t.Fatal(err)
	}
	native, back, named := filepath.Join(t.TempDir(), "native"), filepath.Join(t.TempDir(), "back"), filepath.Join(t.TempDir(), "named")
	convert(t, "--input", from, "--to", "native", "--output", native, "--mtp")
	convert(t, "--input", native, "--to", "hf", "--output", back, "--verify")
	convert(t, "--input", native, "--to", "hf", "--output", named, "--family", "qwen3_5_text", "--verify")
	for _, dir := range []string{back, named} {
		a, err1 := all.OpenAs(checkpoint.HF, from, checkpoint.OpenOptions{MTP: true})
		b, err2 := all.OpenAs(checkpoint.HF, dir, checkpoint.OpenOptions{MTP: true})
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		rows, err := compare.Tensors(a, b, compare.Options{})
		if err != nil || len(rows) != len(sizes) {
			t.Fatalf("%d tensors of %d: %v", len(rows), len(sizes), err)
		}
		for _, r := range rows {
			if !r.Equal() {
				t.Errorf("%s is not what it was", r.Name)
			}
		}
		_, _ = a.Close(), b.Close()
	}
	_, notes, err := call("--input", from, "--to", "hf", "--output", filepath.Join(t.TempDir(), "out"))
	if err != nil || !strings.Contains(notes, "tensors of layers of multi-token prediction") {
		t.Errorf("%v, notes %q", err, notes)
	}
}

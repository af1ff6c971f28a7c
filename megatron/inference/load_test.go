package inference

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/optimizer"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/tokenizer"
)

// save writes l as pretrain_gpt does: values under model., and its Config.
func save(t *testing.T, dir string, l *Loaded, iteration int64, config any) {
	t.Helper()
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	var tensors []mpu.Stored
	for _, p := range l.Stages[0].Params() {
		tensors = append(tensors, p.Stored(optimizer.StoredModel, p.Value, 0, p.Owner)...)
	}
	if _, err := native.Save(context.Background(), dir, native.State{Iteration: iteration, Config: raw}, tensors, l.Device, native.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, dir string, o LoadOptions) (*Loaded, error) {
	d := ref.Open()
	t.Cleanup(d.Arena.Close)
	return Load(d, dir, o)
}

// Claim: a native checkpoint gives its model back, with tokenizer and precision
// of its run, from the save folder, a step of it, or the folder of one, whatever its name; a damaged
// newest one falls back.
func TestLoadNative(t *testing.T) {
	l, dir := tiny(t, nil), t.TempDir()
	config := stored{Model: l.Model, Tokenizer: tokenizer.Config{Type: "NullTokenizer", VocabSize: 10}, Precision: "f32", SeqLength: 24}
	save(t, dir, l, 5, config)
	save(t, dir, l, 6, config)
	want := sample(t, l, SampleOptions{MaxNew: 12})
	check := func(what, dir string, o LoadOptions) {
		t.Helper()
		got, err := load(t, dir, o)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		if ids := sample(t, got, SampleOptions{MaxNew: 12}); !slices.Equal(ids, want) {
			t.Errorf("%s: %v, the saved model gives %v", what, ids, want)
		}
		if got.Tokenizer.Type != "NullTokenizer" || got.MaxContext != 24 || got.Vocab != 11 || got.DType != device.F32 {
			t.Errorf("%s: tokenizer %q, %d positions, %d ids, %s", what, got.Tokenizer.Type, got.MaxContext, got.Vocab, got.DType)
		}
	}
	check("latest", dir, LoadOptions{Step: -1})
	check("step 5", dir, LoadOptions{Step: 5})
	check("one folder", filepath.Join(dir, "iter_0000005"), LoadOptions{Step: -1})
	other := t.TempDir() // with another model of the same iteration next to it
	save(t, other, tiny(t, func(m *spec.Model) { m.HiddenSize *= 2 }), 5, config)
	if err := os.CopyFS(filepath.Join(other, "best"), os.DirFS(filepath.Join(dir, "iter_0000005"))); err != nil {
		t.Fatal(err)
	}
	check("a copy under another name", filepath.Join(other, "best"), LoadOptions{Step: -1})
	if err := os.Truncate(filepath.Join(dir, "iter_0000006", "manifest.json"), 100); err != nil {
		t.Fatal(err)
	}
	check("fallback", dir, LoadOptions{Step: -1})
	if _, err := load(t, dir, LoadOptions{Step: 6}); exitcode.CodeOf(err) != exitcode.IO {
		t.Errorf("damaged step 6: %v, want code %d", err, exitcode.IO)
	}
}

// Claim: another precision than the run's is converted on loading.
func TestLoadPrecision(t *testing.T) {
	l, dir := tiny(t, nil), t.TempDir()
	save(t, dir, l, 1, stored{Model: l.Model, Precision: "f32", SeqLength: 24})
	for precision, dtype := range map[string]device.DType{"f32": device.F32, "bf16": device.BF16, "fp16": device.F16} {
		got, err := load(t, dir, LoadOptions{Step: -1, Precision: precision})
		if err != nil || got.DType != dtype {
			t.Errorf("%s: %v", precision, err)
			continue
		}
		want, have := logProbs(t, l, prompt), logProbs(t, got, prompt)
		for id := range want[0] {
			if math.Abs(want[4][id]-have[4][id]) > 0.1 {
				t.Errorf("%s: log p of %d is %.4f, %.4f in f32", precision, id, have[4][id], want[4][id])
			}
		}
	}
	if _, err := load(t, dir, LoadOptions{Step: -1, Precision: "int4"}); exitcode.CodeOf(err) != exitcode.Usage {
		t.Errorf("int4: %v", err)
	}
}

// Claim: a Hugging Face folder is recognised and gives the same numbers; a
// tokenizer is named only where its files are there.
func TestLoadHF(t *testing.T) {
	l := tiny(t, nil)
	dir := filepath.Join(t.TempDir(), "hf")
	byName := map[string]*mpu.Param{}
	for _, p := range l.Stages[0].Params() {
		byName[p.Name] = p
	}
	get := func(global string) ([]float32, error) {
		return device.ReadSlice[float32](l.Device, byName[global].Value), nil
	}
	if err := hf.Export(dir, &l.Model, get, hf.ExportOptions{Family: hf.GPT2, DType: "F32"}); err != nil {
		t.Fatal(err)
	}
	got, err := load(t, dir, LoadOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	want := sample(t, l, SampleOptions{MaxNew: 12})
	if ids := sample(t, got, SampleOptions{MaxNew: 12}); !slices.Equal(ids, want) {
		t.Errorf("%v, the exported model gives %v", ids, want)
	}
	if !got.Tokenizer.IsZero() || got.MaxContext != 24 {
		t.Errorf("tokenizer %+v, %d positions", got.Tokenizer, got.MaxContext)
	}
	// The ids that end a text, also from a copy in our own format.
	if err := os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(`{"eos_token_id": [3, 5]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	src, err := all.Open(dir, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if _, err := all.Write(t.Context(), checkpoint.Native, copied, src, checkpoint.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{dir, copied} {
		if got, err := load(t, folder, LoadOptions{Step: -1}); err != nil || !slices.Equal(got.Ends, []int32{3, 5}) {
			t.Errorf("%s: %v", folder, err)
		}
	}
}

// Claim: no model, and a manifest that describes none, are errors with their codes.
func TestLoadRefuses(t *testing.T) {
	l, dir := tiny(t, nil), t.TempDir()
	if _, err := load(t, dir, LoadOptions{Step: -1}); exitcode.CodeOf(err) != exitcode.NoInput {
		t.Errorf("empty folder: %v", err)
	}
	if _, err := load(t, filepath.Join(dir, "missing"), LoadOptions{Step: -1}); exitcode.CodeOf(err) != exitcode.NoInput {
		t.Errorf("missing folder: %v", err)
	}
	save(t, dir, l, 1, map[string]int{"Something": 1})
	if _, err := load(t, dir, LoadOptions{Step: -1}); exitcode.CodeOf(err) != exitcode.BadData {
		t.Errorf("no model in the config: %v", err)
	}
	wider := l.Model
	wider.HiddenSize, wider.KVChannels = 32, 16
	other := t.TempDir()
	save(t, other, l, 1, stored{Model: wider, Precision: "f32", SeqLength: 24})
	if _, err := load(t, other, LoadOptions{Step: -1}); exitcode.CodeOf(err) != exitcode.IO {
		t.Errorf("weights of another shape: %v", err)
	}
	if _, err := load(t, other, LoadOptions{Step: 9}); exitcode.CodeOf(err) != exitcode.NoInput {
		t.Errorf("no such step: %v", err)
	}
}

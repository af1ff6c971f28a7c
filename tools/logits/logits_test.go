package logits

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
)

// folder is a Hugging Face folder of a model whose weights are all 0 but the
// word embedding: without layers' help the logits of a position are its own
// normed embedding times the table.
func folder(t *testing.T) string {
	t.Helper()
	m, err := spec.Preset("shakespeare-char")
	if err != nil {
		t.Fatal(err)
	}
	m.NumLayers, m.HiddenSize, m.FFNHiddenSize, m.NumAttentionHeads, m.NumQueryGroups, m.KVChannels = 1, 4, 16, 1, 1, 4
	m.VocabSize, m.PaddedVocabSize, m.MaxPositions = 6, 6, 100
	names, err := hf.NewMapping(&m, hf.GPT2)
	if err != nil {
		t.Fatal(err)
	}
	get := func(global string) ([]float32, error) {
		n := int64(1)
		for _, size := range names.GlobalShape(global) {
			n *= size
		}
		values := make([]float32, n)
		for i := range values {
			switch {
			case global == "embedding.word_embeddings.weight":
				values[i] = table0[i]
			case global == "decoder.final_layernorm.weight":
				values[i] = 1
			}
		}
		return values, nil
	}
	dir := filepath.Join(t.TempDir(), "model")
	if err := hf.Export(dir, &m, get, hf.ExportOptions{Family: hf.GPT2, DType: "F32"}); err != nil {
		t.Fatal(err)
	}
	return dir
}

var table0 = []float32{1, -1, 2, -2, 0, 1, 0, -1, 3, 0, 0, -3, 1, 1, -1, -1, -2, 1, 0, 1, 0.5, 0.5, -0.5, -0.5}

// want is the logits of a token by hand.
func want(id int32) (logits [6]float64) {
	x := table0[4*id : 4*id+4] // their mean is 0
	variance := 0.0
	for _, v := range x {
		variance += float64(v*v) / 4
	}
	for k := range logits {
		for c := range 4 {
			logits[k] += float64(x[c]*table0[4*k+c]) / math.Sqrt(variance+1e-5)
		}
	}
	return logits
}

func call(args ...string) (string, error) {
	var out, notes bytes.Buffer
	open := func(string) (*device.Device, error) { return ref.Open(), nil }
	app := &cli.App{Commands: []*cli.Command{Command(open)}, Writer: &out, ErrWriter: &notes, ExitErrHandler: func(*cli.Context, error) {}}
	err := app.Run(append([]string{"monotron", "logits"}, args...))
	return out.String(), err
}

// prompt is longer than the rows of logits that exist at once.
func longPrompt() (words []string, ids []int32) {
	for i := range 80 {
		ids = append(ids, int32(i*i%6))
		words = append(words, string(rune('0'+i*i%6)))
	}
	return words, ids
}

// Claim: --json gives each position's logits, equal to the formula, and the
// log-probability of the next token.
func TestJSON(t *testing.T) {
	words, ids := longPrompt()
	out, err := call(append([]string{"--load", folder(t), "--json", "--prompt-ids"}, words...)...)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(lines) != len(ids) {
		t.Fatalf("%d lines for %d positions", len(lines), len(ids))
	}
	for i, line := range lines {
		var o object
		if err := json.Unmarshal([]byte(line), &o); err != nil || o.Position != i || o.ID != ids[i] || len(o.Logits) != 6 || (o.NextLog == nil) != (i == len(ids)-1) {
			t.Fatalf("line %d: %v in %s", i, err, line)
		}
		sum := 0.0
		for k, x := range want(ids[i]) {
			sum += math.Exp(x)
			if math.Abs(float64(o.Logits[k])-x) > 1e-4 {
				t.Errorf("position %d: logit of %d is %g, by hand %g", i, k, o.Logits[k], x)
			}
		}
		if o.NextLog != nil && math.Abs(*o.NextLog-(want(ids[i])[ids[i+1]]-math.Log(sum))) > 1e-4 {
			t.Errorf("position %d: next log p %g", i, *o.NextLog)
		}
	}
}

// Claim: --output holds the same numbers, --last only the last position's.
func TestFile(t *testing.T) {
	words, ids := longPrompt()
	path := filepath.Join(t.TempDir(), "x.safetensors")
	for _, last := range []bool{false, true} {
		args := append([]string{"--load", folder(t), "--output", path}, append([]string{"--prompt-ids"}, words...)...)
		first := 0
		if last {
			args, first = append([]string{"--last"}, args...), len(ids)-1
		}
		if _, err := call(args...); err != nil {
			t.Fatal(err)
		}
		f, err := safetensors.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		values, err := f.Float32("logits")
		if err != nil || len(values) != 6*(len(ids)-first) {
			t.Fatalf("%d logits, %v", len(values), err)
		}
		for i, x := range values {
			if w := want(ids[first+i/6])[i%6]; math.Abs(float64(x)-w) > 1e-4 {
				t.Errorf("last %v: logit %d is %g, by hand %g", last, i, x, w)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Claim: the table names the likeliest tokens in order, and the mean loss.
func TestTable(t *testing.T) {
	out, err := call("--load", folder(t), "--top-k", "2", "--prompt-ids", "2", "0")
	if err != nil || !strings.Contains(out, "\n0         2      ") || !strings.Contains(out, "2 8.4") || !strings.Contains(out, "mean loss of the prompt's 1 predicted tokens: ") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Claim: wrong flags are usage errors; a file that cannot be written leaves nothing.
func TestRefusals(t *testing.T) {
	dir := folder(t)
	for _, c := range []struct {
		flags []string
		code  exitcode.Code
	}{
		{[]string{"--prompt-ids", "1"}, exitcode.Usage},
		{[]string{"--load", dir}, exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "1", "--top-k", "0"}, exitcode.Usage},
		{[]string{"--load", dir, "--prompt", "a", "--prompt", "b"}, exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "1", "--json", "--output", "x"}, exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "6"}, exitcode.BadData},
		{[]string{"--load", dir, "--prompt-ids", "1", "--output", dir + "/no/x"}, exitcode.IO},
		{[]string{"--load", dir, "--prompt-ids", "1", "--output", "/dev/null"}, exitcode.Usage},
	} {
		if out, err := call(c.flags...); exitcode.CodeOf(err) != c.code || out != "" {
			t.Errorf("%q: %v, output %q; want code %d", c.flags, err, out, c.code)
		}
	}
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if _, err := call("--load", dir, "--prompt-ids", "6", "--output", path); exitcode.CodeOf(err) != exitcode.BadData {
		t.Errorf("id outside the vocabulary: %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

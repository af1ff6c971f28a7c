package generate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
	"monotron/tokenizer"
)

// folder is a Hugging Face folder of a small model with weights 0.02·(a counter
// mod 7 − 3), and a character tokenizer file of its 12 ids: some are halves of
// nothing, all are letters.
func folder(t *testing.T) (dir, chars string) {
	t.Helper()
	m, err := spec.Preset("shakespeare-char")
	if err != nil {
		t.Fatal(err)
	}
	m.NumLayers, m.HiddenSize, m.FFNHiddenSize, m.NumAttentionHeads, m.NumQueryGroups, m.KVChannels = 1, 8, 32, 2, 2, 4
	m.VocabSize, m.PaddedVocabSize, m.MaxPositions = 12, 12, 16
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
			values[i] = float32(device.Philox(device.StreamKey(1, global), [4]uint32{uint32(i)})[0])/(1<<31) - 1
		}
		return values, nil
	}
	dir = filepath.Join(t.TempDir(), "model")
	if err := hf.Export(dir, &m, get, hf.ExportOptions{Family: hf.GPT2, DType: "F32"}); err != nil {
		t.Fatal(err)
	}
	chars = filepath.Join(t.TempDir(), "chars.json")
	if err := os.WriteFile(chars, []byte(`["a","b","c","d","e","f","g","h","i","j","é","水"]`), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, chars
}

func call(args ...string) (string, string, error) {
	var out, notes bytes.Buffer
	open := func(string) (*device.Device, error) { return ref.Open(), nil }
	app := &cli.App{Commands: []*cli.Command{Command(open)}, Writer: &out, ErrWriter: &notes, Reader: strings.NewReader("cab"), ExitErrHandler: func(*cli.Context, error) {}}
	err := app.Run(append([]string{"monotron", "generate"}, args...))
	return out.String(), notes.String(), err
}

// Claim: the text streamed, the text of --json and the ids agree, for prompts
// given as text, file and ids; the prompt comes first unless --only-new.
func TestOutputs(t *testing.T) {
	dir, chars := folder(t)
	base := []string{"--load", dir, "--tokenizer-type", "CharTokenizer", "--vocab-file", chars, "--max-new-tokens", "8", "--seed", "4"}
	object, _, err := call(append(base, "--prompt", "cab", "--json")...)
	if err != nil {
		t.Fatal(err)
	}
	var r result
	if err := json.Unmarshal([]byte(object), &r); err != nil {
		t.Fatalf("%v in %s", err, object)
	}
	if *r.Prompt != "cab" || !slices.Equal(r.PromptIDs, []int32{2, 0, 1}) || len(r.IDs) != 8 || len(r.LogProbs) != 8 || len([]rune(*r.Text)) != 8 {
		t.Errorf("object is %s", object)
	}
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--prompt", "cab"}, "cab" + *r.Text + "\n"},
		{[]string{"--prompt-ids", "2,0", "1"}, "cab" + *r.Text + "\n"},
		{[]string{"--prompt-file", "-"}, "cab" + *r.Text + "\n"},
		{[]string{"--prompt", "cab", "--only-new"}, *r.Text + "\n"},
	} {
		if got, _, err := call(append(base, c.flags...)...); err != nil || got != c.want {
			t.Errorf("%q: %q, %v; want %q", c.flags, got, err, c.want)
		}
	}
	ids := strings.Trim(fmt.Sprint(r.IDs), "[]")
	if got, _, err := call("--load", dir, "--max-new-tokens", "8", "--seed", "4", "--prompt-ids", "2 0 1"); err != nil || got != "2 0 1 "+ids+"\n" {
		t.Errorf("without a tokenizer: %q, %v; want %q", got, err, "2 0 1 "+ids+"\n")
	}
}

// Claim: every prompt is answered, in its order, each as if it were alone; several samples
// differ, and the first is the one that a single one is.
func TestSeveral(t *testing.T) {
	dir, chars := folder(t)
	base := []string{"--load", dir, "--tokenizer-type", "CharTokenizer", "--vocab-file", chars, "--max-new-tokens", "8", "--seed", "4"}
	of := func(flags ...string) string {
		t.Helper()
		got, _, err := call(append(base, flags...)...)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	a, b := of("--prompt", "a"), of("--prompt", "bc")
	if got, want := of("--prompt", "a", "--prompt", "bc"), "prompt 1:\n"+a+"prompt 2:\n"+b; got != want {
		t.Errorf("two prompts: %q, want %q", got, want)
	}
	file := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(file, []byte("a"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, want := of("--prompt-file", file, "--prompt-file", "-"), "prompt 1:\n"+a+"prompt 2:\n"+of("--prompt", "cab"); got != want {
		t.Errorf("two files: %q, want %q", got, want)
	}
	if got, want := of("--prompt", "a", "--prompt", "bc", "--json"), of("--prompt", "a", "--json")+of("--prompt", "bc", "--json"); got != want {
		t.Errorf("two objects: %q, want %q", got, want)
	}
	three := strings.Split(of("--prompt", "a", "--num_return_sequences", "3"), "\n")
	if len(three) != 7 || three[0] != "sample 1:" || three[1]+"\n" != a || three[1] == three[3] || three[1] == three[5] || three[3] == three[5] {
		t.Errorf("three samples: %q", three)
	}
	best := []string{"--load", dir, "--prompt-ids", "1", "--max-new-tokens", "4", "--num-beams", "3"}
	all, _, err := call(best...)
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := call(append(best, "--num-samples", "2")...); err != nil || got != all[:strings.Index(all, "beam 3")] {
		t.Errorf("the best two beams: %q, %v; of all %q", got, err, all)
	}
}

// Claim: without --max-new-tokens the text ends where the model's positions do.
func TestDefaultLengthFits(t *testing.T) {
	dir, _ := folder(t)
	got, notes, err := call("--load", dir, "--prompt-ids", "1", "--only-new")
	if err != nil || len(strings.Fields(got)) != 15 || !strings.Contains(notes, "15 tokens in") {
		t.Errorf("%q, %q, %v; want 15 ids", got, notes, err)
	}
}

// Claim: beams come best first, and text and object agree.
func TestBeams(t *testing.T) {
	dir, chars := folder(t)
	base := []string{"--load", dir, "--tokenizer-type", "CharTokenizer", "--vocab-file", chars, "--max-new-tokens", "5", "--prompt", "a", "--num-beams", "3"}
	object, _, err := call(append(base, "--json")...)
	if err != nil {
		t.Fatal(err)
	}
	var r result
	if err := json.Unmarshal([]byte(object), &r); err != nil || len(r.Beams) != 3 {
		t.Fatalf("%v in %s", err, object)
	}
	want := ""
	for i, b := range r.Beams {
		want += fmt.Sprintf("beam %d, score %.4f:\na%s\n", i+1, b.Score, *b.Text)
	}
	if got, _, err := call(base...); err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

// Claim: characters cut over several tokens come out complete, and what is left of
// one at the end is one U+FFFD (GPT-2's ids 12859 and 112 are halves of a character).
func TestStreamIsUTF8(t *testing.T) {
	tok, err := tokenizer.EmbeddedGPT2()
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode("水 né🙂")
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(ids) + 1 {
		var out bytes.Buffer
		w := &writer{tok: tok}
		w.W = &out
		emit := w.stream(nil)
		for _, id := range ids[:cut] {
			emit(id)
			if s := out.String(); strings.ToValidUTF8(s, "?") != s || strings.Contains(s, "\uFFFD") {
				t.Errorf("%d of the ids: %q is broken before the end", cut, s)
			}
		}
		emit(-1)
		if s := strings.TrimSuffix(strings.TrimSuffix(out.String(), "\n"), "\uFFFD"); !strings.HasPrefix("水 né🙂", s) {
			t.Errorf("%d of the ids gave %q", cut, s)
		}
	}
}

// Claim: each wrong flag is one usage error that names it.
func TestFlagErrors(t *testing.T) {
	dir, _ := folder(t)
	for _, c := range []struct {
		flags []string
		say   string
		code  exitcode.Code
	}{
		{[]string{"--prompt-ids", "1"}, "--load is missing", exitcode.Usage},
		{[]string{"--load", dir}, "--prompt-file and --prompt-ids", exitcode.Usage},
		{[]string{"--load", dir, "--prompt", "a", "--prompt-ids", "1"}, "not 2 of them", exitcode.Usage},
		{[]string{"--load", dir, "--prompt", "a"}, "does not name a tokenizer", exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "x"}, `"x" is not a token id`, exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "12"}, "vocabulary has 12 ids", exitcode.BadData},
		{[]string{"--load", dir, "--prompt-ids", "1", "--max-new-tokens", "0"}, "--max-new-tokens must be from 1 to 2147483647, not 0", exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "1", "--max-new-tokens", "16"}, "exceed the model's 16 positions; generate at most 15", exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "1", "--temperature", "-1"}, "--temperature must be from 0 to 1e+30, not -1", exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "1", "--temperature", "NaN"}, "--temperature must be from 0 to 1e+30, not NaN", exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "1", "--top-k", "-2"}, "--top-k must be from 0 to 2147483647, not -2", exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "1", "--top-p", "0"}, "--top-p must be above 0 and at most 1, not 0", exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "1", "--top-p", "1.5"}, "--top-p must be from 0 to 1, not 1.5", exitcode.Usage},
		{[]string{dir, "--prompt-ids", "1"}, "does not belong to a flag; did you mean --load " + dir + "?", exitcode.Usage},
		{[]string{dir + "/none", "--prompt-ids", "1"}, `/none" does not belong to a flag`, exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "1", "--num-beams", "2", "--seed", "1"}, "--num-beams", exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "1", "--num-beams", "0"}, "--num-beams must be from 1 to 1024, not 0", exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "1", "--num-beams", "100000"}, "--num-beams must be from 1 to 1024, not 100000", exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "1", "--max-length", "5", "--max-new-tokens", "3"}, "--max-length cannot be combined with --max-new-tokens; give one", exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "1", "--max-length", "0"}, "--max-length must be at least 1, not 0", exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "1", "--num-samples", "0"}, "--num-samples must be from 1 to ", exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "1", "--num-samples", "2"}, "give --temperature", exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "1", "--num-samples", "3", "--num-beams", "2"}, "--num-samples must be at most --num-beams 2, the number of texts that beam search finds, not 3", exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "1", "--stop-token", "12"}, "--stop-token must be \"none\" or a token id below 12, not 12", exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "1", "--bf16", "--fp16"}, "--fp32, --bf16 and --fp16 cannot be combined; give one", exitcode.Usage},
		{[]string{"--load", dir, "--prompt-ids", "1", "--cpu-threads", "-1"}, "--cpu-threads must be from 0 to 4096, not -1", exitcode.Usage},
		{[]string{"--load", dir, "--prompt-file", dir + "/none"}, "no such file", exitcode.NoInput},
		{[]string{"--load", dir + "/none", "--prompt-ids", "1"}, "does not exist", exitcode.NoInput},
		{[]string{"--lod", dir}, "--load", exitcode.Usage},
	} {
		out, _, err := call(c.flags...)
		if err == nil || exitcode.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.say) || out != "" {
			t.Errorf("%q: %v (code %d), output %q; want code %d and %q", c.flags, err, exitcode.CodeOf(err), out, c.code, c.say)
		}
	}
}

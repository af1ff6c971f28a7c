package traintokenizer

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/tokenizer"
)

func call(flags ...string) (string, error) {
	var out bytes.Buffer
	app := &cli.App{Commands: []*cli.Command{Command()}, Writer: &out, ErrWriter: &out, ExitErrHandler: func(*cli.Context, error) {}}
	err := app.RunContext(context.Background(), append([]string{"monotron", "train_tokenizer"}, flags...))
	return out.String(), err
}

// Claim: the files make a tokenizer that gives texts back; they do not depend
// on the number of workers; lines of text and of JSON are read alike.
func TestTrainedTokenizerWorks(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := write("a.txt", strings.Repeat("the cat, the hat\nthat\n", 100000))
	object := write("a.jsonl", "{\"text\": \"the cat, the hat\\nthat\\n\"}\n")
	one, many, lines := filepath.Join(dir, "1"), filepath.Join(dir, "7"), filepath.Join(dir, "j")
	for _, flags := range [][]string{
		{"--input", text, "--output-dir", one, "--workers", "1"},
		{"--input", text, "--output-dir", many, "--workers", "7"},
		{"--input", object, "--output-dir", lines},
	} {
		if out, err := call(append(flags, "--vocab-size", "262", "--pattern", "llama3")...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, name := range []string{"vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json"} {
		a, err := os.ReadFile(filepath.Join(one, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range []string{many, lines} {
			if b, err := os.ReadFile(filepath.Join(other, name)); err != nil || !bytes.Equal(a, b) {
				t.Errorf("%s of %s differs: %v", name, filepath.Base(other), err)
			}
		}
	}
	hf, err := tokenizer.FromConfig(tokenizer.Config{Type: "HuggingFaceTokenizer", Model: one})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := hf.Encode("the theory<|endoftext|>")
	if err != nil || hf.EOD() != 0 || hf.Decode(ids) != "the theory<|endoftext|>" || ids[len(ids)-1] != 0 || hf.VocabSize() != 262 {
		t.Errorf("%v, %v, EOD %d", ids, err, hf.EOD())
	}
	gpt2, err := tokenizer.FromConfig(tokenizer.Config{VocabFile: filepath.Join(one, "vocab.json"), MergeFile: filepath.Join(one, "merges.txt")})
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := gpt2.Encode("that the"); err != nil || !slices.Contains(plain, ids[0]) {
		t.Errorf("%v, %v", plain, err)
	}
}

// Claim: what cannot be done is one error with its exit code.
func TestErrors(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.txt")
	if err := os.WriteFile(bad, []byte("a\n\xff\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code  exitcode.Code
		says  string
		flags []string
	}{
		{exitcode.Usage, "--output-dir", []string{"--input", bad}},
		{exitcode.Usage, "--pattern", []string{"--input", bad, "--output-dir", "x", "--pattern", "no"}},
		{exitcode.NoInput, "none", []string{"--input", "none", "--output-dir", "x", "--vocab-size", "300"}},
		{exitcode.BadData, "bad.txt:2", []string{"--input", bad, "--output-dir", "x", "--vocab-size", "300"}},
	} {
		if _, err := call(c.flags...); exitcode.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v", c.flags, err)
		}
	}
}

// Claim (docs/tokenizers.md): inputs of several formats train one tokenizer, each read by its own name; one whose name
// says nothing is then refused, and no input is replaced by a file of the tokenizer.
func TestMixedInputs(t *testing.T) {
	t.Chdir(t.TempDir())
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(`{"text"}` + "\n")); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"a.jsonl": `{"text": "aaaa bbbb"}` + "\n", "b.txt.gz": packed.String(), "lines": "x\n",
		"both.jsonl": `{"text": ["aaaa bbbb", "{\"text\"}\n"]}` + "\n", "tokenizer.json": `{"text": "aaaa bbbb"}` + "\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	// The merges are those of all texts together.
	merges := map[string]string{}
	for out, inputs := range map[string]string{"1": "a.jsonl b.txt.gz", "2": "b.txt.gz a.jsonl", "3": "both.jsonl"} {
		args := append([]string{"--input"}, strings.Fields(inputs)...)
		if text, err := call(append(args, "--output-dir", out, "--vocab-size", "266")...); err != nil {
			t.Fatalf("%s: %v: %s", inputs, err, text)
		}
		text, err := os.ReadFile(filepath.Join(out, "merges.txt"))
		if err != nil {
			t.Fatal(err)
		}
		merges[out] = string(text)
	}
	if merges["1"] != merges["3"] || merges["2"] != merges["3"] || strings.Count(merges["3"], "\n") != 10 {
		t.Errorf("merges %q", merges)
	}
	for inputs, says := range map[string]string{"a.jsonl b.txt.gz lines": "the name of lines does not show", "tokenizer.json": "would replace the input"} {
		args := append([]string{"--input"}, strings.Fields(inputs)...)
		if _, err := call(append(args, "--output-dir", ".", "--vocab-size", "266")...); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", inputs, err)
		}
	}
}

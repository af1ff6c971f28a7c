package preprocess

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/dataset"
	"monotron/internal/exitcode"
)

// call runs a command line of the tools in this process.
func call(words ...string) (stderr string, err error) {
	var out bytes.Buffer
	app := &cli.App{
		Commands: []*cli.Command{Command(), FastCommand()}, Writer: &out, ErrWriter: &out,
		ExitErrHandler: func(*cli.Context, error) {},
	}
	err = app.RunContext(context.Background(), append([]string{"monotron"}, words...))
	return out.String(), err
}

func hash(t *testing.T, path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Claim: every golden command line gives Megatron's bytes; where Megatron's tool
// fails or hangs, ours is one error that names the line, and leaves no file.
func TestGoldenCommands(t *testing.T) {
	data, err := os.ReadFile("testdata/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		ID       string
		Commands []string
		Outputs  map[string][2]string
		Error    bool
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) < 20 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	inputs, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.ID, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.Mkdir("out", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS("inputs", os.DirFS(inputs)); err != nil {
				t.Fatal(err)
			}
			t.Setenv("NLTK_DATA", filepath.Join(inputs, "../punkt/testdata/nltk"))
			for _, line := range c.Commands {
				// the vocabulary files are GPT-2's, which are built in
				line = strings.ReplaceAll(line, "--vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt ", "")
				words := strings.Fields(line)
				words[0] = strings.TrimSuffix(words[0], ".py")
				_, err = call(words...)
				if err != nil {
					break
				}
			}
			if c.Error {
				wantError(t, c.ID, err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for prefix, want := range c.Outputs {
				if got := [2]string{hash(t, prefix+".bin"), hash(t, prefix+".idx")}; got != want {
					t.Errorf("%s: %v, want %v", prefix, got, want)
				}
			}
		})
	}
}

// wantError checks an error case. Three are limits of the original that ours
// does not have.
func wantError(t *testing.T, id string, err error) {
	for _, free := range []string{"e08-bom", "e12-workers", "e13-two-files"} {
		if strings.HasSuffix(id, free) && (err == nil || free == "e13-two-files") {
			return
		}
	}
	if err == nil || exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), ".jsonl:") || !strings.Contains(err.Error(), "use --on-bad-line skip to leave") {
		t.Errorf("%v (exit code %d) does not name the line", err, exitcode.CodeOf(err))
	}
	if left, _ := os.ReadDir("out"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Claim: the output does not depend on the number of workers.
func TestWorkersDoNotMatter(t *testing.T) {
	t.Chdir(t.TempDir())
	var text bytes.Buffer
	for i := range 6000 {
		word := strings.Repeat("naïve words, ", 4*(i%17))
		line, err := json.Marshal(map[string]string{"text": word + string(rune('a'+i%26))})
		if err != nil {
			t.Fatal(err)
		}
		text.Write(append(line, '\n'))
	}
	if err := os.WriteFile("x.jsonl", text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	var first [2]string
	for i, workers := range []string{"1", "2", "5"} {
		if _, err := call("preprocess_data", "--input", "x.jsonl", "--output-prefix", "w"+workers, "--workers", workers, "--tokenizer-type", "GPT2BPETokenizer", "--append-eod"); err != nil {
			t.Fatal(err)
		}
		got := [2]string{hash(t, "w"+workers+"_text_document.bin"), hash(t, "w"+workers+"_text_document.idx")}
		if i == 0 {
			first = got
		}
		if got != first {
			t.Errorf("%s workers give other bytes", workers)
		}
	}
}

// Claim: a text is cut by characters, with the vocabulary of all of it, as
// nanoGPT's shakespeare_char recipe does.
func TestTextSplit(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("x.txt", []byte("ééé bab\nab"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := call("preprocess_data", "--input", "x.txt", "--input-format", "text", "--text-split", "0.7", "--tokenizer-type", "CharTokenizer", "--output-prefix", "c"); err != nil {
		t.Fatal(err)
	}
	for prefix, want := range map[string][]int32{"c_train_document": {4, 4, 4, 1, 3, 2, 3}, "c_val_document": {0, 2, 3}} {
		x, err := dataset.Open(prefix)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := x.Sequence(0); err != nil || !slices.Equal(got, want) || x.Len() != 1 {
			t.Errorf("%s: %v, %v; want %v", prefix, got, err, want)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
	if data, err := os.ReadFile("c_vocab.json"); err != nil || string(data) != `["\n"," ","a","b","é"]`+"\n" {
		t.Errorf("%q, %v", data, err)
	}
}

// Claim: wrong flags are reported together, before any file is touched.
func TestFlagErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	for line, says := range map[string][]string{
		"--workers 0":              {"--workers must be from 1 to 4096, not 0"},
		"--inptu x":                {"did you mean --input?"},
		"--input x --workers many": {"many"},
		"--input none.jsonl --output-prefix y --tokenizer-type NullTokenizer --vocab-size 5":                            {"none.jsonl"},
		"--input /dev/null --output-prefix y":                                                                           {"--tokenizer-type"},
		"--input /dev/null --output-prefix y --split-sentences --lang xx":                                               {"xx"},
		"--input /dev/null --output-prefix y --dataset-impl slow":                                                       {"--dataset-impl"},
		"--input /dev/null --output-prefix y --tokenizer-type NullTokenizer --vocab-size 0":                             {"--vocab-size"},
		"--input /dev/null --output-prefix no/such/y --tokenizer-type NullTokenizer --vocab-size 9":                     {"no/such"},
		"--input /dev/null --output-prefix y --text-split 0.5 --tokenizer-type NullTokenizer --vocab-size 9":            {"--text-split"},
		"--input /dev/null --input-format text --output-prefix y --tokenizer-type CharTokenizer --append-eod":           {"character vocabulary"},
		"--input /dev/null --output-prefix y --tokenizer-type NullTokenizer --vocab-size 9 --json-keys text stray -- x": {"x"},
	} {
		_, err := call(append([]string{"preprocess_data"}, strings.Fields(line)...)...)
		code := exitcode.CodeOf(err)
		if err == nil || code != exitcode.Usage && code != exitcode.NoInput && code != exitcode.BadData && code != exitcode.IO {
			t.Errorf("%s: %v, exit code %d", line, err, code)
			continue
		}
		for _, s := range says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q does not say %q", line, err, s)
			}
		}
	}
	if left, _ := os.ReadDir("."); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Claim (docs/data.md): an input of which use --on-bad-line skip to leave nothing is an error, and nothing is written; of a
// folder the files that are left out are counted; text in Latin-1 is refused with how it becomes UTF-8; a character
// vocabulary of JSON lines is asked for as a file, not by the same command again.
func TestInputsThatLeaveNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("in/bad.jsonl", "{\"other\": \"a\"}\nnot JSON\n")
	write("in/latin.txt", "caf\xe9\n")
	write("in/latin.jsonl", "{\"text\": \"caf\xe9\"}\n")
	write("docs/a.jsonl", "{\"text\": \"1 2\"}\n")
	write("docs/b.pdf", "%PDF")
	write("docs/c.log", "x")
	const null = " --tokenizer-type NullTokenizer --vocab-size 9"
	for line, want := range map[string]string{
		"--input in/bad.jsonl --output-prefix y --on-bad-line skip" + null:                       "y: all 2 lines of the input were left out",
		"--input in/bad.jsonl --output-prefix y --on-bad-line skip --partitions 2" + null:        "y: all 2 lines of the input were left out",
		"--input in/latin.txt --output-prefix y --tokenizer-type GPT2BPETokenizer":               "in/latin.txt is not UTF-8 text, which --input-format text needs; if the text is Latin-1, use `iconv -f LATIN1 -t UTF-8` to convert it",
		"--input in/latin.jsonl --output-prefix y --tokenizer-type GPT2BPETokenizer --workers 1": "byte 0xe9 is not UTF-8; if the text is Latin-1, use `iconv -f LATIN1",
		"--input in/latin.jsonl --output-prefix y --tokenizer-type CharTokenizer":                "can make its vocabulary only from text files",
	} {
		_, err := call(append([]string{"preprocess_data"}, strings.Fields(line)...)...)
		if code := exitcode.CodeOf(err); err == nil || !strings.Contains(err.Error(), want) || code != exitcode.BadData && code != exitcode.Usage {
			t.Errorf("%s: code %d, %v, want %q", line, code, err, want)
		}
	}
	if left, err := filepath.Glob("*y*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	out, err := call(strings.Fields("preprocess_data --input docs --output-prefix y" + null)...)
	if err != nil || !strings.Contains(out, "--input docs: 2 files are left out, because their names do not show that they contain text or JSON lines (1 .log, 1 .pdf); to read such a file as well, name it") {
		t.Errorf("%v: %s", err, out)
	}
}

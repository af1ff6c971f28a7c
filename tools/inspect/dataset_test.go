package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/dataset"
	"monotron/internal/exitcode"
)

func call(words ...string) (string, error) {
	var out, notes bytes.Buffer
	app := &cli.App{Commands: []*cli.Command{Dataset(), Samples()}, Writer: &out, ErrWriter: &notes, ExitErrHandler: func(*cli.Context, error) {}}
	err := app.RunContext(context.Background(), append([]string{"inspect"}, words...))
	return out.String(), err
}

// pair holds two documents: ids 1 2 3, and 4 5 in two sequences.
func pair(t *testing.T) string {
	prefix := filepath.Join(t.TempDir(), "x")
	b, err := dataset.NewBuilder(prefix, dataset.U16)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Abort()
	for _, d := range []struct{ ids, lengths []int32 }{{[]int32{1, 2, 3}, []int32{3}}, {[]int32{4, 5}, []int32{1, 1}}} {
		if err := b.AddDocument(d.ids, d.lengths); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Finalize(); err != nil {
		t.Fatal(err)
	}
	return prefix
}

// Claim: inspect dataset counts, prints a document, and finds ids outside the
// vocabulary with their position.
func TestInspectDataset(t *testing.T) {
	prefix := pair(t)
	for _, name := range []string{prefix, prefix + ".idx", prefix + ".bin"} {
		out, err := call("dataset", name)
		if err != nil || !strings.Contains(out, "documents  2\nsequences  3\ntokens     5\n") || !strings.Contains(out, "1 to 3") {
			t.Errorf("%s: %s, %v", name, out, err)
		}
	}
	out, err := call("dataset", prefix, "--document", "1", "--tokenizer-type", "NullTokenizer", "--vocab-size", "9")
	if err != nil || !strings.Contains(out, "sequence 2: 1 tokens [5]\n5\n") {
		t.Errorf("%s, %v", out, err)
	}
	_, err = call("dataset", prefix, "--check-ids", "--tokenizer-type", "NullTokenizer", "--vocab-size", "5")
	if exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), "x.bin, byte 8") {
		t.Errorf("%v", err)
	}
	if out, err = call("dataset", prefix, "--check-ids", "--tokenizer-type", "NullTokenizer", "--vocab-size", "6"); err != nil || !strings.Contains(out, "largest id 5") {
		t.Errorf("%s, %v", out, err)
	}
	for _, words := range [][]string{{"dataset"}, {"dataset", prefix, "--document", "2"}, {"dataset", prefix, "--check-ids"}} {
		if _, err := call(words...); exitcode.CodeOf(err) != exitcode.Usage {
			t.Errorf("%q: %v", words, err)
		}
	}
}

// Claim: inspect samples prints what the trainer reads and writes the arrays
// behind it as .npy files.
func TestInspectSamples(t *testing.T) {
	prefix := pair(t)
	index := filepath.Join(t.TempDir(), "index")
	flags := []string{"samples", "--data-path", prefix, "--split", "1", "--seq-length", "2", "--tokenizer-type", "NullTokenizer", "--vocab-size", "9", "--train-samples", "3"}
	out, err := call(append(flags, "--count", "2", "--text", "--write-index", index)...)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(strings.NewReader(out))
	for k := range 2 {
		var s struct {
			Index          int
			Tokens, Labels []int32
			Text           string
		}
		if err := d.Decode(&s); err != nil || s.Index != k || len(s.Tokens) != 2 || s.Tokens[1] != s.Labels[0] || len(s.Text) != 3 {
			t.Errorf("%+v, %v", s, err)
		}
	}
	for _, name := range []string{"train-document_index.npy", "train-sample_index.npy", "train-shuffle_index.npy", "train-description.txt"} {
		if data, err := os.ReadFile(filepath.Join(index, name)); err != nil || len(data) < 100 {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
	for _, more := range [][]string{{"--first", "9"}, {"--show", "x"}, {"--show", "valid"}, {"--seed", "4294967296"}, {"--valid-samples", "many"}, {"stray"}} {
		if _, err := call(append(flags, more...)...); exitcode.CodeOf(err) != exitcode.Usage {
			t.Errorf("%q: %v", more, err)
		}
	}
}

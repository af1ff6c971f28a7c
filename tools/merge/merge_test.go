package merge

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/dataset"
	"monotron/internal/exitcode"
)

func call(words ...string) error {
	var out bytes.Buffer
	app := &cli.App{Commands: []*cli.Command{Command()}, Writer: &out, ErrWriter: &out, ExitErrHandler: func(*cli.Context, error) {}}
	return app.RunContext(context.Background(), append([]string{"monotron", "merge_datasets"}, words...))
}

// pairOf writes a pair with a document of one token.
func pairOf(t *testing.T, prefix string, token int32) {
	t.Helper()
	b, err := dataset.NewBuilder(prefix, dataset.U16)
	if err == nil {
		err = errors.Join(b.AddDocument([]int32{token}, []int32{1}), b.Finalize())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Claim: pairs are joined in the order of their names by code point, and a
// folder with anything else in it is refused (Megatron-LM, tools/merge_datasets.py).
func TestMergeOrder(t *testing.T) {
	in, out := t.TempDir(), filepath.Join(t.TempDir(), "m")
	for i, name := range []string{"b", "a", "B"} {
		pairOf(t, filepath.Join(in, name), int32(i))
	}
	if err := call("--input", in, "--output-prefix", out); err != nil {
		t.Fatal(err)
	}
	x, err := dataset.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	var got []int32
	for i := range x.Len() {
		if got, err = x.Slice(i, 0, 1, got); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int32{2, 1, 0}; !slices.Equal(got, want) || x.Documents() != 3 {
		t.Errorf("%v, want %v", got, want)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(in, "a.bin")); err != nil {
		t.Fatal(err)
	}
	if err := call("--input", in, "--output-prefix", out); exitcode.CodeOf(err) != exitcode.BadData {
		t.Errorf("half a pair: %v", err)
	}
	for code, words := range map[exitcode.Code][]string{
		exitcode.Usage:   {"--input", in},
		exitcode.NoInput: {"--input", t.TempDir(), "--output-prefix", out},
	} {
		if err := call(words...); exitcode.CodeOf(err) != code {
			t.Errorf("%q: %v", words, err)
		}
	}
}

// Claim: a pair without sidecar takes away that of the pair it replaces, and no other file of that name.
func TestMergeRemovesTheOldSidecar(t *testing.T) {
	in, out := t.TempDir(), filepath.Join(t.TempDir(), "m")
	pairOf(t, filepath.Join(in, "a"), 1)
	for text, stays := range map[string]bool{`{"format": "monotron tokens 1"}`: false, `{"format": "another"}`: true} {
		if err := os.WriteFile(out+".json", []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := call("--input", in, "--output-prefix", out); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(out + ".json"); (err == nil) != stays {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Claim (docs/data.md): an output that is one of the pairs of --input, under whatever name, is refused, and the
// pairs stay as they are; so a second run in the same folder does not join its own output again.
func TestMergeOfItsOwnOutput(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	if err := os.Mkdir(in, 0o777); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"a", "b"} {
		pairOf(t, filepath.Join(in, name), int32(i))
	}
	documents := func(prefix string) int64 {
		x, err := dataset.Open(prefix)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		return x.Documents()
	}
	// The link is another name of the same file.
	if err := os.Symlink(filepath.Join(in, "b.bin"), filepath.Join(dir, "link.bin")); err != nil {
		t.Fatal(err)
	}
	if err := call("--input", in, "--output-prefix", filepath.Join(in, "all")); err != nil || documents(filepath.Join(in, "all")) != 2 {
		t.Fatal(err)
	}
	for _, out := range []string{filepath.Join(in, "all"), filepath.Join(in, "a"), filepath.Join(dir, "link"), filepath.Join(dir, "in", ".", "..", "in", "a")} {
		if err := call("--input", in, "--output-prefix", out); exitcode.CodeOf(err) != exitcode.Usage {
			t.Errorf("%s: %v", out, err)
		}
	}
	for name, want := range map[string]int64{"all": 2, "a": 1, "b": 1} {
		if n := documents(filepath.Join(in, name)); n != want {
			t.Errorf("%s has %d documents, want %d", name, n, want)
		}
	}
	// An earlier result in another folder is replaced.
	for range 2 {
		if err := call("--input", in, "--output-prefix", filepath.Join(dir, "all")); err != nil || documents(filepath.Join(dir, "all")) != 4 {
			t.Fatal(err)
		}
	}
}

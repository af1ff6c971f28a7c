package tokenizer

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"monotron/internal/exitcode"
)

// Claim: the files written for GPT-2's built-in ranks are those it was published with, byte for
// byte. Source: SHA-256 of the published vocab.json and merges.txt.
func TestBuiltInFilesAsPublished(t *testing.T) {
	files, err := Config{Type: "GPT2BPETokenizer"}.Files(true)
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for i, want := range []string{"196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783", "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"} {
		if got := fmt.Sprintf("%x", sha256.Sum256(files[i].Data)); got != want {
			t.Errorf("%s: SHA-256 %s, want %s", files[i].Name, got, want)
		}
	}
	if files, err := (Config{Type: "GPT2BPETokenizer"}).Files(false); len(files) > 0 || err != nil {
		t.Error("built-in files, not asked for:", len(files), err)
	}
}

// Claim: what Files reads, put into a folder, is what In finds there, for each kind.
func TestKeptFilesAreFound(t *testing.T) {
	from, plain := t.TempDir(), t.TempDir()
	for _, name := range []string{"v.json", "m.txt", "pieces.model", "tokenizer.json", "tokenizer_config.json", "README.md"} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(from, name) }
	for _, c := range []struct {
		config Config
		files  int
	}{
		{Config{VocabFile: at("v.json"), MergeFile: at("m.txt")}, 2},
		{Config{Type: "CharTokenizer", VocabFile: at("v.json")}, 1},
		{Config{Type: "Llama2Tokenizer", Model: at("pieces.model")}, 1},
		{Config{Type: "TikTokenizer", Model: at("v.json")}, 1},
		{Config{Type: "HuggingFaceTokenizer", Model: from}, 2},
		{Config{Type: "HuggingFaceTokenizer", Model: at("tokenizer.json")}, 2},
		{Config{Type: "HuggingFaceTokenizer", Model: at("v.json")}, 2},
		{Config{Type: "NullTokenizer", VocabSize: 5}, 0},
	} {
		files, err := c.config.Files(true)
		if err != nil || len(files) != c.files {
			t.Errorf("%+v: %d files, %v; want %d", c.config, len(files), err, c.files)
		}
		dir := t.TempDir()
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		moved := c.config.In(dir)
		if c.files > 0 && moved.VocabFile == c.config.VocabFile && moved.Model == c.config.Model {
			t.Errorf("%+v: not found in the folder that has %d files", c.config, len(files))
		}
		if again, err := moved.Files(true); err != nil || len(again) != len(files) {
			t.Errorf("%+v: %d files of the kept ones, %v; want %d", moved, len(again), err, len(files))
		}
		if stays := c.config.In(plain); stays.VocabFile != c.config.VocabFile || stays.Model != c.config.Model {
			t.Errorf("%+v is said to lie in an empty folder: %+v", c.config, stays)
		}
	}
}

// Claim: what is not a plain file, or larger than a tokenizer is, is refused without reading it.
func TestKeepsNoGiantsNorPipes(t *testing.T) {
	dir := t.TempDir()
	pipe, giant := filepath.Join(dir, "pipe"), filepath.Join(dir, "giant")
	if err := syscall.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(giant, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(giant, mostKept+1); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, giant, dir} {
		if _, err := (Config{Type: "CharTokenizer", VocabFile: path}).Files(false); exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := FromConfig(Config{Type: "CharTokenizer", VocabFile: path}); exitcode.CodeOf(err) != exitcode.BadData && path != giant {
			t.Errorf("%s as a vocabulary: %v", path, err)
		}
	}
}

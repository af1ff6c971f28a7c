package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"monotron/internal/golden"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// published are GPT-2's vocab.json and merges.txt, written from the built-in ranks; that they
// are the published files is TestBuiltInFilesAsPublished's claim.
func published(t testing.TB) (vocab, merges string) {
	t.Helper()
	files, err := Config{Type: "GPT2BPETokenizer"}.Files(true)
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	dir := t.TempDir()
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, files[0].Name), filepath.Join(dir, files[1].Name)
}

var embedded = sync.OnceValue(func() *GPT2 {
	t, err := EmbeddedGPT2()
	if err != nil {
		panic(err)
	}
	return t
})

// Claim: ids equal those of Megatron-LM's GPT2BPETokenizer on every golden line.
func TestGPT2GoldenLines(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden lines: %v", err)
	}
	files = append(files, filepath.Join(golden.Dir(t, "data", "tokenizer"), "long-runs.jsonl"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var c struct {
				ID, Text string
				IDs      []int32
			}
			if err := json.Unmarshal(line, &c); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			got, err := embedded().Encode(c.Text)
			if err != nil || !slices.Equal(got, c.IDs) {
				t.Errorf("%s: %v, %v; want %v", c.ID, got, err, c.IDs)
			}
			if back := embedded().Decode(got); back != c.Text {
				t.Errorf("%s: decoded to %q", c.ID, back)
			}
		}
	}
}

// Claim: long runs, and texts where a shared folder has them, have the ids whose hashes
// cases.json lists, with the vocabulary files and with the embedded ranks.
func TestGPT2GoldenFiles(t *testing.T) {
	fromFiles, err := LoadGPT2(published(t))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(golden.Dir(t, "data", "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases struct {
		Tokenizer []struct {
			ID, Input string
			Tokens    int
			SHA       string `json:"sha256_ids_u16"`
			ByLine    *struct {
				SHA string `json:"sha256_ids_u16"`
			} `json:"by_line"`
			Runs []struct {
				Piece, Tail string
				Count       int
				SHA         string `json:"sha256_ids_u16"`
			}
		}
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	checked := 0
	check := func(name, sha string, texts ...string) {
		for _, tok := range []*GPT2{fromFiles, embedded()} {
			var ids []int32
			for _, text := range texts {
				if ids, err = tok.Append(ids, text); err != nil {
					t.Fatal(err)
				}
			}
			if got := hashU16(ids); got != sha {
				t.Errorf("%s: hash of %d ids is %s, want %s", name, len(ids), got, sha)
			}
			checked++
		}
	}
	for _, c := range cases.Tokenizer {
		for _, r := range c.Runs {
			check(c.ID, r.SHA, strings.Repeat(r.Piece, r.Count)+r.Tail)
		}
		if c.Input != "" && golden.Shared() != "" {
			text, err := os.ReadFile(filepath.Join(golden.Shared(), "data", c.Input))
			if err != nil {
				t.Fatal(err)
			}
			check(c.ID, c.SHA, string(text))
			check(c.ID+" by line", c.ByLine.SHA, strings.SplitAfter(string(text), "\n")...)
		}
	}
	if checked < 8 {
		t.Errorf("only %d texts were checked", checked)
	}
}

func hashU16(ids []int32) string {
	b := make([]byte, 0, 2*len(ids))
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint16(b, uint16(id))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Claim: the merges recovered from the embedded ranks are those of GPT-2's own
// merges.txt, pair for pair and in its order.
func TestEmbeddedEqualsFiles(t *testing.T) {
	f, err := LoadGPT2(published(t))
	if err != nil {
		t.Fatal(err)
	}
	e := embedded()
	if f.eod != e.eod || len(f.spellings) != len(e.spellings) {
		t.Fatalf("EOD %d and %d, tokens %d and %d", f.eod, e.eod, len(f.spellings), len(e.spellings))
	}
	for id := range f.spellings {
		if !bytes.Equal(f.spellings[id], e.spellings[id]) {
			t.Fatalf("id %d is %q in the files, %q embedded", id, f.spellings[id], e.spellings[id])
		}
	}
	if !f.bpe.SameMerges(e.bpe) {
		t.Fatal("the merges of the ranks are not those of merges.txt")
	}
}

// Claim: the 65 symbols of nanoGPT's shakespeare_char (its readme) get 65 ids, and texts of
// them survive encoding and decoding.
func TestCharShakespeare(t *testing.T) {
	const symbols = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	text := strings.Repeat("O, speak again!\n", 3) + symbols
	c, err := CharFromText(text)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := c.Encode(text)
	if err != nil || c.VocabSize() != 65 || len(ids) != len(text) || c.Decode(ids) != text {
		t.Fatalf("%d symbols, %d ids for %d characters, %v", c.VocabSize(), len(ids), len(text), err)
	}
}

// BenchmarkGPT2 reads 1.1 MB of English, warm.
func BenchmarkGPT2(b *testing.B) {
	if golden.Shared() == "" {
		b.Skip("no shared folder with data/wikitext2-valid.txt; MONOTRON_SHARED names one")
	}
	text, err := os.ReadFile(filepath.Join(golden.Shared(), "data/wikitext2-valid.txt"))
	if err != nil {
		b.Fatal(err)
	}
	e := embedded()
	ids := make([]int32, 0, len(text))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if ids, err = e.Append(ids[:0], string(text)); err != nil {
			b.Fatal(err)
		}
	}
}

package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// shared is the folder of shared material, "" where this machine has none.
func shared() string {
	if s := os.Getenv("MONOTRON_SHARED"); s != "" {
		return s
	}
	dir, _ := os.Getwd()
	for dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		if s := filepath.Join(dir, "shared"); exists(filepath.Join(s, "golden")) {
			return s
		}
	}
	return ""
}

func needShared(t testing.TB) string {
	s := shared()
	if s == "" {
		t.Skip("no shared folder (set MONOTRON_SHARED)")
	}
	return s
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
	if s := shared(); s != "" {
		files = append(files, filepath.Join(s, "golden/data/tokenizer/long-runs.jsonl"))
	}
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

// Claim: the whole files and the long runs of cases.json have the ids whose
// hashes it lists, with the vocabulary files and with the embedded ranks.
func TestGPT2GoldenFiles(t *testing.T) {
	root := needShared(t)
	fromFiles, err := LoadGPT2(filepath.Join(root, "data/gpt2-vocab.json"), filepath.Join(root, "data/gpt2-merges.txt"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, "golden/data/cases.json"))
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
		if c.Input != "" {
			text, err := os.ReadFile(filepath.Join(root, "data", c.Input))
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
	root := needShared(t)
	f, err := LoadGPT2(filepath.Join(root, "data/gpt2-vocab.json"), filepath.Join(root, "data/gpt2-merges.txt"))
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

// Claim: nanoGPT's shakespeare_char has 65 symbols (its readme).
func TestCharShakespeare(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(needShared(t), "data/tinyshakespeare.txt"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := CharFromText(string(text))
	if err != nil {
		t.Fatal(err)
	}
	ids, err := c.Encode(string(text))
	if err != nil || c.VocabSize() != 65 || len(ids) != len(text) || c.Decode(ids) != string(text) {
		t.Fatalf("%d symbols, %d ids for %d characters, %v", c.VocabSize(), len(ids), len(text), err)
	}
}

// BenchmarkGPT2 reads 1.1 MB of English, warm.
func BenchmarkGPT2(b *testing.B) {
	text, err := os.ReadFile(filepath.Join(needShared(b), "data/wikitext2-valid.txt"))
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

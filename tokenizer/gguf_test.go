package tokenizer

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"monotron/internal/gguf"
	"monotron/tokenizer/ggvocab"
	"monotron/tokenizer/uni"
)

// Claim: the tokenizer of a GGUF file gives the ids that llama.cpp gives. Source: the
// ggml-vocab-*.gguf files of llama.cpp's models folder with their texts (.inp) and ids
// (.out), where MONOTRON_GGML_VOCABS names that folder.
func TestVocabulariesOfLlamaCpp(t *testing.T) {
	dir := os.Getenv("MONOTRON_GGML_VOCABS")
	if dir == "" {
		t.Skip("MONOTRON_GGML_VOCABS does not name llama.cpp's models folder")
	}
	paths, _ := filepath.Glob(filepath.Join(dir, "ggml-vocab-*.gguf"))
	if len(paths) == 0 {
		t.Fatalf("no vocabularies in %s", dir)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) { checkVocabulary(t, path) })
	}
}

func checkVocabulary(t *testing.T, path string) {
	texts, err := os.ReadFile(path + ".inp")
	if err != nil {
		t.Skip("no texts")
	}
	want, err := os.ReadFile(path + ".out")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := FromConfig(Config{Type: "HuggingFaceTokenizer", Model: path, NoSpecial: true})
	if err != nil {
		t.Skip(err)
	}
	lines := strings.Split(strings.TrimRight(string(want), "\n"), "\n")
	list := strings.Split(string(texts), "\n__ggml_vocab_test__\n")
	wrong := 0
	for i, text := range list[:min(len(list), len(lines))] {
		var ids []int32
		for _, word := range strings.Fields(lines[i]) {
			n, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, int32(n))
		}
		got, err := tok.Encode(text)
		if err != nil || !slices.Equal(got, ids) {
			wrong++
			t.Logf("%q: %v, %v; llama.cpp gives %v", text, got, err, ids)
		}
	}
	t.Logf("%d of %d texts have other ids", wrong, len(list))
	if wrong > 0 {
		t.Fail()
	}
}

// throughGGUF writes a tokenizer's files as the metadata of a GGUF file, and reads that.
func throughGGUF(t *testing.T, c Config, size int) (Tokenizer, error) {
	t.Helper()
	kept, err := c.Files(true)
	if err != nil {
		t.Fatal(err)
	}
	var files []ggvocab.File
	for _, f := range kept {
		files = append(files, ggvocab.File{Name: f.HF, Data: f.Data})
	}
	pairs, _, err := ggvocab.Metadata(ggvocab.Options{Files: files, Size: size})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(t.TempDir(), "x.gguf")
	if _, err := gguf.Write(context.Background(), path, pairs, nil); err != nil {
		t.Fatal(err)
	}
	return FromConfig(Config{Type: "HuggingFaceTokenizer", Model: path})
}

// Claim: a tokenizer that is written to a GGUF file gives the ids it gave, special tokens
// around the text included, where texts need no normalizer; those that GGUF cannot hold are
// refused. Source: the ids of the peers' own libraries.
func TestPeersThroughGGUF(t *testing.T) {
	carried := 0
	for name, c := range peers(t) {
		if c.Type == "TikTokenizer" {
			continue // no file of Hugging Face's
		}
		original, err := FromConfig(c)
		if err != nil {
			t.Fatal(err)
		}
		back, err := throughGGUF(t, c, original.VocabSize()+3)
		if err != nil {
			t.Logf("%s: %v", name, err)
			if slices.Contains([]string{"deepseek", "llama2", "llama3", "qwen2"}, name) {
				t.Errorf("%s is not carried", name)
			}
			continue
		}
		if slices.Contains([]string{"sp-unigram-identity", "sp-bpe"}, name) {
			continue // a unigram is noted; Llama2Tokenizer puts no bos before a text
		}
		carried++
		data, err := os.ReadFile("testdata/peers/" + name + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var want struct {
				Text string
				IDs  []int32
			}
			if err := json.Unmarshal(line, &want); err != nil {
				t.Fatal(err)
			}
			if name == "qwen2" && uni.Normalize(uni.NFC, want.Text) != want.Text || strings.Contains(want.Text, "word") || strings.Contains(want.Text, "<0x") {
				continue // llama.cpp does not normalize, has no single_word, and finds no bytes in a text
			}
			if got, err := back.Encode(want.Text); err != nil || !slices.Equal(got, want.IDs) {
				t.Errorf("%s: %+q is %v, %v; want %v", name, want.Text, got, err, want.IDs)
			}
		}
	}
	if carried < 3 {
		t.Errorf("%d tokenizers were compared", carried)
	}
}

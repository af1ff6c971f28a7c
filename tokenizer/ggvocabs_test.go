package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
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

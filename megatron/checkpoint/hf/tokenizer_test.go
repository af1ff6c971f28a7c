package hf

import (
	"os"
	"path/filepath"
	"testing"
)

// Claim: the tokenizer of a folder is read with all of its files: GPT-2's two alone are its own tokenizer, and with a
// tokenizer_config.json or added_tokens.json that of the folder.
func TestTokenizerOfAFolder(t *testing.T) {
	for want, files := range map[string][]string{
		"":                     {"config.json"},
		"GPT2BPETokenizer":     {"vocab.json", "merges.txt"},
		"HuggingFaceTokenizer": {"vocab.json", "merges.txt", "tokenizer_config.json"},
		"Llama2Tokenizer":      {"tokenizer.model", "tokenizer_config.json"},
	} {
		dir := t.TempDir()
		for _, name := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := tokenizerOf(dir).Type; got != want {
			t.Errorf("%v: %q, want %q", files, got, want)
		}
	}
}

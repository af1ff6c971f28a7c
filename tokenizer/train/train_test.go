package train

import (
	"encoding/json"
	"slices"
	"testing"

	"maps"
	"monotron/tokenizer/bpe"
)

// Claim: merges are those of Hugging Face's BpeTrainer (tokenizers 0.23) on the
// same words: most frequent first, lower ids among equals, also where a token
// can be made in two ways.
func TestMergesAsHuggingFace(t *testing.T) {
	c := NewCounter(bpe.GPT2)
	for _, text := range []string{"aaab aab ab abab", "low lower lowest newer wider", "abcabcabc abc bc ab"} {
		c.Add(text)
	}
	r, err := Words(c.Counts, Config{VocabSize: 257 + 20, Special: []string{"<|endoftext|>"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range r.Merges {
		got = append(got, r.Tokens[m[0]]+" "+r.Tokens[m[1]])
	}
	want := []string{"a b", "Ġ ab", "e r", "l o", "ab c", "lo w", "a ab", "Ġ low", "abc abc", "a aab", "b c", "d er", "e s", "e w", "i der", "n ew", "w ider", "Ġ aab", "Ġ bc", "Ġ new"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Claim: the files are JSON that names every token once, and a vocabulary
// smaller than its bytes is refused.
func TestFiles(t *testing.T) {
	special := []string{"<|end & begin|>"}
	r, err := Words(map[string]int64{"abab": 3}, Config{VocabSize: 300, Special: special})
	if err != nil {
		t.Fatal(err)
	}
	files := r.Files(bpe.Llama3.Expression(), special, special[0])
	var vocab map[string]int
	if err := json.Unmarshal(files["vocab.json"], &vocab); err != nil || len(vocab) != len(r.Tokens) || vocab["<|end & begin|>"] != 0 {
		t.Errorf("%d tokens, %v", len(vocab), err)
	}
	if names := slices.Sorted(maps.Keys(files)); !slices.Equal(names, FileNames) {
		t.Errorf("files %v, want %v", names, FileNames)
	}
	for name, data := range files {
		if name != "merges.txt" && !json.Valid(data) {
			t.Errorf("%s is no JSON", name)
		}
	}
	if string(files["merges.txt"]) != "#version: 0.2\na b\nab ab\n" {
		t.Errorf("%q", files["merges.txt"])
	}
	if _, err := Words(nil, Config{VocabSize: 256, Special: special}); err == nil {
		t.Error("256 ids for 256 bytes and a special token")
	}
}

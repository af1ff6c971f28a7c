package tokenizer

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"monotron/internal/gguf"
	"monotron/tokenizer/ggvocab"
)

// Claim: a GGUF file has every token that the files of a folder name, at its id, also one that tokenizer.json does not
// have; files without such tokens are unchanged.
func TestComplete(t *testing.T) {
	builtIn, err := builtInFiles()
	if err != nil {
		t.Fatal(err)
	}
	vocab, merges := builtIn[0].Data, builtIn[1].Data
	file := []byte(`{"model": {"type": "BPE", "vocab": ` + string(vocab) + `, "merges": []}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
		"added_tokens": [{"id": 50256, "content": "<|endoftext|>", "special": true}]}`)
	const fast = `{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"`
	for name, c := range map[string]struct {
		files []ggvocab.File
		want  []string // from id 50256
		pre   string
	}{
		"nothing else":         {[]ggvocab.File{{Name: "tokenizer.json", Data: file}}, []string{endOfText, "[PAD50257]"}, "gpt-2"},
		"a role":               {[]ggvocab.File{{Name: "tokenizer.json", Data: file}, {Name: "tokenizer_config.json", Data: []byte(fast + `}`)}}, []string{endOfText, "<|im_end|>", "[PAD50258]"}, "gpt-2"},
		"added_tokens_decoder": {[]ggvocab.File{{Name: "tokenizer.json", Data: file}, {Name: "tokenizer_config.json", Data: []byte(fast + `, "added_tokens_decoder": {"50257": {"content": "<|im_start|>", "special": true}, "50258": {"content": "<|im_end|>", "special": true}}}`)}}, []string{endOfText, "<|im_start|>", "<|im_end|>"}, "gpt-2"},
		"added_tokens.json":    {[]ggvocab.File{{Name: "tokenizer.json", Data: file}, {Name: "added_tokens.json", Data: []byte(`{"<|im_end|>": 50258, "<|im_start|>": 50257}`)}}, []string{endOfText, "<|im_start|>", "<|im_end|>"}, "gpt-2"},
		"Qwen 2, two files":    {[]ggvocab.File{{Name: "vocab.json", Data: vocab}, {Name: "merges.txt", Data: merges}, {Name: "tokenizer_config.json", Data: []byte(`{"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>"}`)}}, []string{endOfText, "<|im_end|>"}, "qwen2"},
	} {
		files, err := Complete(c.files)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if name == "nothing else" && !bytes.Equal(files[0].Data, file) {
			t.Errorf("%s: the file is changed", name)
		}
		pairs, _, err := ggvocab.Metadata(ggvocab.Options{Files: files, Size: 50260, Config: map[string]any{}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		value := func(key string) any {
			return pairs[slices.IndexFunc(pairs, func(p gguf.Pair) bool { return p.Key == "tokenizer.ggml."+key })].Value
		}
		tokens, _ := value("tokens").([]string)
		if got := tokens[50256:][:len(c.want)]; !slices.Equal(got, c.want) || value("pre") != c.pre {
			t.Errorf("%s: %q cut by %v, want %q by %s", name, got, value("pre"), c.want, c.pre)
		}
		if slices.Contains(c.want, "<|im_end|>") && name != "added_tokens.json" {
			if end, err := json.Marshal(value("eos_token_id")); err != nil || string(end) != map[bool]string{true: "50258", false: "50257"}[name == "added_tokens_decoder"] {
				t.Errorf("%s: texts end at %s", name, end)
			}
		}
	}
}

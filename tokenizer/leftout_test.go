package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Claim: a folder whose tokenizer.model alone is read says what is left out of it; one that adds nothing says nothing.
func TestLeftOut(t *testing.T) {
	model, err := os.ReadFile("testdata/peers/sp-bpe.model")
	if err != nil {
		t.Fatal(err)
	}
	for config, want := range map[string][]string{
		"":   nil,
		"{}": nil,
		`{"tokenizer_class": "LlamaTokenizer", "add_bos_token": false, "bos_token": "<s>", "unk_token": "<unk>"}`: nil,
		`{"tokenizer_class": "LlamaTokenizer"}`: {"texts do not get <s>"},
		`{"tokenizer_class": "LlamaTokenizer", "add_bos_token": false, "added_tokens_decoder": {"1": {"content": "<s>"}, "500": {"content": "<|im_start|>"}}, "eos_token": "<|im_end|>"}`: {"2 added tokens, such as <|im_start|> <|im_end|>, are split"},
	} {
		files := map[string]string{"tokenizer.model": string(model)}
		if config != "" {
			files["tokenizer_config.json"] = config
		}
		note := LeftOut(filepath.Join(folderOf(t, files), "tokenizer.model"))
		if (note == "") != (want == nil) {
			t.Errorf("%s: %q", config, note)
		}
		for _, part := range want {
			if !strings.Contains(note, part) {
				t.Errorf("%s: %q lacks %q", config, note, part)
			}
		}
	}
}

package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// folderOf is a folder with the files.
func folderOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// smallJSON knows <e> <a> <b> by letters, a blank, and one added token.
const smallJSON = `{"version": "1.0", "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
	"added_tokens": [{"id": 0, "content": "<e>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
	"model": {"type": "BPE", "vocab": {"<e>": 0, "a": 1, "b": 2, "<": 3, ">": 4, "e": 5, "\u0120": 6}, "merges": []}}`

// Claim: what the files next to a tokenizer.json say of its tokens changes ids as it does in transformers 5.24,
// whose ids these are.
func TestFilesNextToTokenizerJSON(t *testing.T) {
	const fast = `{"tokenizer_class": "PreTrainedTokenizerFast"`
	for name, c := range map[string]struct {
		config, added, special string
		want                   []int32
	}{
		"nothing else":          {config: fast + `}`, want: []int32{1, 0, 2, 6, 3, 1, 2, 4, 3, 2, 1, 4}},
		"added_tokens.json":     {config: fast + `}`, added: `{"<ba>": 7, "<ab>": 8}`, want: []int32{1, 0, 2, 6, 8, 7}},
		"extra_special_tokens":  {config: fast + `, "extra_special_tokens": {"x_token": "<ba>", "y_token": "<ab>"}}`, want: []int32{1, 0, 2, 6, 8, 7}},
		"a role of its own":     {config: fast + `, "image_token": "<ba>"}`, want: []int32{1, 0, 2, 6, 3, 1, 2, 4, 7}},
		"split_special_tokens":  {config: fast + `, "split_special_tokens": true}`, want: []int32{1, 3, 5, 4, 2, 6, 3, 1, 2, 4, 3, 2, 1, 4}},
		"add_prefix_space":      {config: `{"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": true}`, want: []int32{6, 1, 0, 6, 2, 6, 3, 1, 2, 4, 3, 2, 1, 4}},
		"ids of the first file": {config: fast + `, "added_tokens_decoder": {"7": {"content": "<ab>", "special": true}, "8": {"content": "<ba>", "special": true}}}`, special: `{"eos_token": "<ba>"}`, want: []int32{1, 0, 2, 6, 7, 8}},
	} {
		files := map[string]string{"tokenizer.json": smallJSON, "tokenizer_config.json": c.config}
		if c.added != "" {
			files["added_tokens.json"] = c.added
		}
		if c.special != "" {
			files["special_tokens_map.json"] = c.special
		}
		tok, err := FromConfig(Config{Type: "HuggingFaceTokenizer", Model: folderOf(t, files)})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if ids, err := tok.Encode("a<e>b <ab><ba>"); err != nil || !slices.Equal(ids, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, ids, err, c.want)
		}
	}
}

// Claim: a folder with GPT-2's two files and no tokenizer.json has the ids of transformers 5.24, by its class and its
// added tokens; a class that makes something else of the files is refused.
func TestVocabAndMerges(t *testing.T) {
	files, err := builtInFiles()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config, added string
		want          []int32
		eod           int
	}{
		"no other file": {want: []int32{17250, 1105, 2682, 27, 91, 320, 62, 437, 91, 29, 628, 2124, 50256}, eod: 50256},
		"GPT-2":         {config: `{"tokenizer_class": "GPT2Tokenizer"}`, want: []int32{17250, 1105, 2682, 27, 91, 320, 62, 437, 91, 29, 628, 2124, 50256}, eod: 50256},
		"added tokens":  {config: `{"tokenizer_class": "GPT2Tokenizer"}`, added: `{"<|im_end|>": 50258, "<|im_start|>": 50257}`, want: []int32{17250, 1105, 2682, 50258, 628, 2124, 50256}, eod: 50256},
		"Qwen 2": {config: `{"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "added_tokens_decoder": {"50256": {"content": "<|endoftext|>", "special": true},
			"50257": {"content": "<|im_start|>", "special": true}, "50258": {"content": "<|im_end|>", "special": true}}}`, want: []int32{17250, 220, 16, 17, 18, 19, 50258, 628, 2124, 50256}, eod: 50258},
		"OPT": {config: `{"tokenizer_class": "GPT2Tokenizer", "add_bos_token": true, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "</s>"}`, added: `{"<s>": 50257, "</s>": 50258}`,
			want: []int32{50257, 17250, 1105, 2682, 27, 91, 320, 62, 437, 91, 29, 628, 2124, 27, 91, 437, 1659, 5239, 91, 29}, eod: 50258},
		"a prefix": {config: `{"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": true}`, want: []int32{15902, 1105, 2682, 27, 91, 320, 62, 437, 91, 29, 628, 2124, 50256}, eod: 50256},
	} {
		folder := map[string]string{}
		for _, f := range files {
			folder[f.Name] = string(f.Data)
		}
		if c.config != "" {
			folder["tokenizer_config.json"] = c.config
		}
		if c.added != "" {
			folder["added_tokens.json"] = c.added
		}
		tok, err := FromConfig(Config{Type: "HuggingFaceTokenizer", Model: folderOf(t, folder)})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if ids, err := tok.Encode("Hi 1234<|im_end|>\n\n x<|endoftext|>"); err != nil || !slices.Equal(ids, c.want) || tok.EOD() != c.eod {
			t.Errorf("%s: %v, %v, want %v; EOD %d, want %d", name, ids, err, c.want, tok.EOD(), c.eod)
		}
	}
	// Roberta's class puts tokens around a text, which nothing in the files says.
	dir := folderOf(t, map[string]string{"vocab.json": string(files[0].Data), "merges.txt": string(files[1].Data), "tokenizer_config.json": `{"tokenizer_class": "RobertaTokenizer"}`})
	if _, err := FromConfig(Config{Type: "HuggingFaceTokenizer", Model: dir}); exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), "RobertaTokenizer") {
		t.Errorf("Roberta: %v", err)
	}
}

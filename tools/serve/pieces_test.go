package serve

import (
	"os"
	"path/filepath"
	"testing"

	"monotron/tokenizer"
	"monotron/tools/internal/answering"
)

// Claim: offsets count from the start of the prompt as it was sent, and echo gives it: a token that the tokenizer puts
// before a text has no characters. Tokens that a client sends as ids, or as text, have theirs.
func TestTokensAroundAPrompt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	const file = `{"added_tokens": [{"id": 2, "content": "<s>", "special": true}], "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "<s>": 2}, "merges": []}, "decoder": {"type": "ByteLevel"},
		"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
			"pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [2], "tokens": ["<s>"]}}}}`
	if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromConfig(tokenizer.Config{Type: "HuggingFaceTokenizer", Model: path})
	if err != nil {
		t.Fatal(err)
	}
	l := &loaded{Model: &answering.Model{Tok: tok}}
	for _, c := range []struct {
		ids    []int32
		text   string
		prompt string
		around int
	}{
		{[]int32{2, 0, 1}, "ab", "ab", 1},
		{[]int32{2, 0, 1}, "", "<s>ab", 0},
		{[]int32{2, 2, 0}, "<s>a", "<s>a", 1},
		{[]int32{2, 2, 0}, "<s><s>a", "<s><s>a", 0},
	} {
		if p := l.pieces(c.ids, c.text); p.prompt != c.prompt || p.around != c.around || p.chars != len(c.prompt) {
			t.Errorf("%v of %q: prompt %q, %d tokens around it, %d characters; want %q, %d", c.ids, c.text, p.prompt, p.around, p.chars, c.prompt, c.around)
		}
	}
}

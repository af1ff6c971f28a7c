package hf

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const (
	alone  = `{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true}`
	behind = `{"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "Isolated"}, ` + alone + `]}`
)

// beginning is a file with a normalizer and a pre-tokenizer.
func beginning(normalizer, splitter string) []byte {
	var vocab []string
	for i, token := range []string{"<unk>", "▁", "▁a", "a", "x", "xx", "f", "i", ".", "e"} {
		vocab = append(vocab, fmt.Sprintf("[%q, %d]", token, -1-i))
	}
	return fmt.Appendf(nil, `{"normalizer": %s, "pre_tokenizer": %s, "model": {"type": "Unigram", "unk_id": 0, "vocab": [%s]}}`,
		normalizer, splitter, strings.Join(vocab, ", "))
}

// Claim: with prepend_scheme first a piece gets a blank where it begins with what
// is left of the text's first character, whatever the normalizer did before it.
// The ids are those of the Python package tokenizers 0.23.3; its
// scripts/crosscheck-tokenizers/first.py compares many more.
func TestWhereATextBegins(t *testing.T) {
	for _, c := range []struct {
		normalizer, splitter, text string
		want                       []int32
	}{
		{`{"type": "Nmt"}`, alone, "\u000ba", []int32{3}},
		{`{"type": "Nmt"}`, alone, "a\u000b a", []int32{2, 2}},
		{`{"type": "Nmt"}`, behind, "\u000b.a", []int32{8, 3}},
		{`{"type": "Nmt"}`, behind, "a.", []int32{2, 8}},
		{`{"type": "StripAccents"}`, alone, "\u0301a", []int32{3}},
		{`{"type": "Strip", "strip_left": true, "strip_right": false}`, alone, " a", []int32{3}},
		{`{"type": "Strip", "strip_left": false, "strip_right": true}`, alone, "\u000ba", []int32{1, 0, 3}},
		{`{"type": "Replace", "pattern": {"String": "x"}, "content": ""}`, alone, "xa", []int32{3}},
		{`{"type": "Replace", "pattern": {"String": "x"}, "content": "a"}`, alone, "xa", []int32{2, 3}},
		{`{"type": "Replace", "pattern": {"String": "xx"}, "content": "a"}`, alone, "xxa", []int32{3, 3}},
		{`{"type": "Sequence", "normalizers": [{"type": "Nmt"}, {"type": "Prepend", "prepend": "x"}]}`, alone, "\u000ba", []int32{4, 3}},
		{`{"type": "Prepend", "prepend": "x"}`, behind, "a.a", []int32{1, 4, 3, 8, 3}},
		{`{"type": "NFKC"}`, alone, "\ufb01", []int32{1, 6, 7}},
		{`{"type": "Lowercase"}`, behind, "\u0130.a", []int32{1, 7, 0, 8, 3}},
		{`{"type": "Sequence", "normalizers": [{"type": "Nmt"}, {"type": "NFC"}]}`, alone, "\u000be\u0301", []int32{0}},
	} {
		tok, err := Parse("tokenizer.json", beginning(c.normalizer, c.splitter), Changes{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tok.Append(nil, c.text, true); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s, %q: %v, want %v (%v)", c.normalizer, c.text, got, c.want, err)
		}
	}
}

// Claim: where the answer hangs on alignments that are not kept, the file is
// refused and the message names what.
func TestBeginningsThatAreNotKnown(t *testing.T) {
	for _, c := range []struct{ normalizer, splitter, says string }{
		{`{"type": "NFKC"}`, behind, "NFKC"},
		{`{"type": "Replace", "pattern": {"Regex": "^"}, "content": "x"}`, alone, "Replace"},
	} {
		if _, err := Parse("tokenizer.json", beginning(c.normalizer, c.splitter), Changes{}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.normalizer, err)
		}
	}
}

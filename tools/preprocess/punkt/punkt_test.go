package punkt

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

const english = "testdata/nltk/tokenizers/punkt_tab/english"

// Claim: sentences equal NLTK's (3.9.1, same parameters), with and without the
// white space after them.
func TestSentencesAgainstNLTK(t *testing.T) {
	p, err := Load(english)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("testdata/nltk.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range bytes.Lines(data) {
		var c struct {
			Text            string
			Sentences, Kept []string
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		if got := NewSplitter(p, false).Split(c.Text); !slices.Equal(got, c.Sentences) {
			t.Errorf("%q: %q, want %q", c.Text, got, c.Sentences)
		}
		if got := NewSplitter(p, true).Split(c.Text); !slices.Equal(got, c.Kept) {
			t.Errorf("%q, space kept: %q, want %q", c.Text, got, c.Kept)
		}
		n++
	}
	if n < 40 {
		t.Errorf("only %d texts", n)
	}
}

// Claim: a text beyond a million characters is cut there, as Megatron cuts it.
func TestChunks(t *testing.T) {
	p, err := Load(english)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("é", chunk) + "ab"
	if got := NewSplitter(p, false).Split(text); len(got) != 2 || got[1] != "ab" {
		t.Errorf("%d sentences", len(got))
	}
	if got := NewSplitter(p, false).Split(""); len(got) != 0 {
		t.Errorf("an empty text gave %q", got)
	}
}

// Claim: parameters that are missing or damaged are one error that says where.
func TestParameterErrors(t *testing.T) {
	t.Setenv("NLTK_DATA", "testdata/nltk")
	if _, err := Find("english"); err != nil {
		t.Error(err)
	}
	for language, code := range map[string]exitcode.Code{"klingon": exitcode.NoInput, "../x": exitcode.Usage, "": exitcode.Usage} {
		if _, err := Find(language); exitcode.CodeOf(err) != code {
			t.Errorf("%q: %v", language, err)
		}
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(english)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "ortho_context.tab")
	if err := os.WriteFile(path, []byte("a\t1\nb\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), "ortho_context.tab:2") {
		t.Errorf("%v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); exitcode.CodeOf(err) != exitcode.NoInput {
		t.Errorf("%v", err)
	}
}

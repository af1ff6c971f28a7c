package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"monotron/internal/golden"
	"monotron/tokenizer"
)

type goldenCase struct {
	Conversation string
	Generate     bool `json:"add_generation_prompt"`
	Continue     bool `json:"continue_final_message"`
	Text         *string
	IDs          []int32
	Mask         *[][2]int `json:"assistant_mask_generation"`
	Error        struct{ Type, Message string }
}

type goldenFile struct {
	BOS   string `json:"bos_token"`
	EOS   string `json:"eos_token"`
	Now   string
	Cases []goldenCase
}

type conversation struct {
	Messages         []json.RawMessage
	Tools, Documents json.RawMessage
	Kwargs           json.RawMessage
}

// Claim (golden/chat, renders by transformers 5.23): every conversation gives transformers' text,
// its ids and the tokens that its generation blocks wrote, or fails where transformers fails,
// with the words of raise_exception.
func TestRendersOfTransformers(t *testing.T) {
	dir := golden.Dir(t, "chat")
	var conversations map[string]conversation
	golden.ReadJSON(t, filepath.Join(dir, "conversations.json"), &conversations)
	tok, err := tokenizer.FromConfig(tokenizer.Config{Type: "HuggingFaceTokenizer", Model: filepath.Join(dir, "tokenizer.json")})
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "cases", "*.json"))
	total := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			var f goldenFile
			golden.ReadJSON(t, file, &f)
			text, err := os.ReadFile(filepath.Join(dir, "templates", name+".jinja"))
			if err != nil {
				t.Fatal(err)
			}
			template, err := New(Source{Text: string(text), BOS: f.BOS, EOS: f.EOS})
			if err != nil {
				t.Fatal(err)
			}
			now, err := time.Parse("2006-01-02 15:04:05", f.Now)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range f.Cases {
				total++
				c.check(t, tok, template, conversations[c.Conversation], now)
			}
		})
	}
	if t.Logf("%d renders", total); total < 1196 {
		t.Errorf("only %d renders were compared", total)
	}
}

func (c *goldenCase) check(t *testing.T, tok tokenizer.Tokenizer, template *Template, q conversation, now time.Time) {
	got, err := template.RenderSpans(q.Messages, Options{AddGenerationPrompt: c.Generate, ContinueFinalMessage: c.Continue,
		Tools: q.Tools, Documents: q.Documents, Variables: q.Kwargs, Now: now})
	switch {
	case c.Text == nil && err == nil:
		t.Errorf("%s: %q, where transformers fails", c.Conversation, got.Text)
	case c.Text == nil && c.Error.Type == "TemplateError" && err.Error() != c.Error.Message:
		t.Errorf("%s: %q, want the template's own words %q", c.Conversation, err, c.Error.Message)
	case c.Text == nil:
	case err != nil:
		t.Errorf("%s: %.200v, want %q", c.Conversation, err, *c.Text)
	case got.Text != *c.Text:
		t.Errorf("%s:\n%q, want\n%q", c.Conversation, got.Text, *c.Text)
	case c.IDs != nil:
		ids, _ := tokenizer.AppendPlain(tok, nil, got.Text)
		if !slices.Equal(ids, c.IDs) {
			t.Errorf("%s: ids %v, want %v", c.Conversation, ids, c.IDs)
		}
		if runs := tokensOf(tok, ids, got.Spans); c.Mask != nil && !slices.Equal(runs, *c.Mask) {
			t.Errorf("%s: generation blocks wrote tokens %v, want %v", c.Conversation, runs, *c.Mask)
		}
	}
}

// tokensOf are the tokens [from, to) that spans of bytes touch, runs that meet joined.
func tokensOf(tok tokenizer.Tokenizer, ids []int32, spans [][2]int) (runs [][2]int) {
	at := 0
	for i, id := range ids {
		end := at + len(tok.AppendBytes(nil, id))
		for _, s := range spans {
			if s[0] < end && at < s[1] {
				if n := len(runs); n > 0 && runs[n-1][1] >= i {
					runs[n-1][1] = i + 1
				} else {
					runs = append(runs, [2]int{i, i + 1})
				}
			}
		}
		at = end
	}
	return runs
}

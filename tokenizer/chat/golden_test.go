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

// refused are the templates that the library behind this package (gonja) cannot read or
// run, 24 while it runs, the others before: a person is told so when the model is asked for
// a chat.
var refused = map[string]bool{
	"09-gemma3":                  true,
	"23-harmony":                 true,
	"24-filters":                 true,
	"26-llama3-generation-tools": true,
}

// plain tells whether a conversation is of texts alone: no tools, no documents, no content
// that is missing or a list. The server refuses the others.
func plain(q conversation) bool {
	for _, m := range q.Messages {
		var turn map[string]any
		json.Unmarshal(m, &turn)
		_, text := turn["content"].(string)
		if !text || turn["role"] == "tool" || turn["tool_calls"] != nil {
			return false
		}
	}
	none := func(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }
	return none(q.Tools) && none(q.Documents)
}

// Claim (golden/chat): conversations of texts render to transformers' text and ids, or fail
// where transformers fails; a template that cannot be read or run is an error, never another
// text.
func TestRendersOfTransformers(t *testing.T) {
	dir := golden.Dir(t, "golden", "chat")
	var conversations map[string]conversation
	read(t, filepath.Join(dir, "conversations.json"), &conversations)
	tok, err := tokenizer.FromConfig(tokenizer.Config{Type: "HuggingFaceTokenizer", Model: filepath.Join(dir, "tokenizer.json")})
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "cases", "*.json"))
	total, good := 0, 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			var f goldenFile
			read(t, file, &f)
			text, err := os.ReadFile(filepath.Join(dir, "templates", name+".jinja"))
			if err != nil {
				t.Fatal(err)
			}
			template, err := New(Source{Text: string(text), BOS: f.BOS, EOS: f.EOS})
			if err != nil {
				if !refused[name] {
					t.Errorf("refused: %.300s", err)
				}
				return
			}
			now, err := time.Parse("2006-01-02 15:04:05", f.Now)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range f.Cases {
				q := conversations[c.Conversation]
				if c.Continue || !plain(q) {
					continue
				}
				total++
				got, err := template.Render(q.Messages, Options{AddGenerationPrompt: c.Generate, Tools: q.Tools, Documents: q.Documents, Variables: q.Kwargs, Now: now})
				switch {
				case c.Text == nil && err == nil:
					t.Errorf("%s: %q, where transformers fails", c.Conversation, got)
				case c.Text != nil && err != nil && refused[name]:
				case c.Text != nil && err != nil:
					t.Errorf("%s: %.200v, want %q", c.Conversation, err, *c.Text)
				case c.Text != nil && got != *c.Text:
					t.Errorf("%s:\n%q, want\n%q", c.Conversation, got, *c.Text)
				default:
					if ids, _ := tokenizer.AppendPlain(tok, nil, got); c.IDs != nil && !slices.Equal(ids, c.IDs) {
						t.Errorf("%s: ids %v, want %v", c.Conversation, ids, c.IDs)
						continue
					}
					good++
				}
			}
		})
	}
	if t.Logf("%d of %d renders", good, total); good < 500 {
		t.Errorf("%d renders agree", good)
	}
}

func read(t *testing.T, path string, to any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// Claim (transformers' PreTrainedTokenizerBase._from_pretrained): chat_template.jinja goes before the entry of
// tokenizer_config.json, tokens are texts or objects, and a template sees those that the tokenizer has.
func TestSources(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text := func() string {
		var s Source
		if err := s.ReadFolder(dir); err != nil {
			t.Fatal(err)
		}
		template, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		got, err := template.Render([]json.RawMessage{json.RawMessage(`{"role": "user"}`)}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	write("tokenizer_config.json", `{"chat_template": [{"name": "x", "template": "x"}, {"name": "default", "template": "config"}], "bos_token": {"content": "<b>"}, "pad_token": "<p>", "eos_token": null}`)
	if got := text(); got != "config" {
		t.Errorf("%q from the configuration", got)
	}
	write("chat_template.jinja", "{{ bos_token }}{{ pad_token }}{{ eos_token is defined }}{{ tools is none }}")
	if got := text(); got != "<b><p>FalseTrue" {
		t.Errorf("%q from the file", got)
	}
}

// Claim: the file of a flag is taken as it is, and refused with its name if it is empty or no template.
func TestTemplateOfFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jinja")
	for text, says := range map[string]string{"a\n\n": "", "": path + " is empty; write a template", " \n": path + " is empty", "a{% for %}": path + " cannot be read as a chat template: line 1: TemplateSyntaxError"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := ReadFile(path)
		if says == "" && (err != nil || got != text) || says != "" && (err == nil || !strings.HasPrefix(err.Error(), says) || exitcode.CodeOf(err) != exitcode.BadData) {
			t.Errorf("%q: %q, %v; want %q", text, got, err, says)
		}
	}
}

// Claim (transformers' get_chat_template): of templates by name, in a list or as files, tool_use renders conversations
// with tools, and default all others.
func TestTemplateForTools(t *testing.T) {
	const config = `{"chat_template": [{"name": "default", "template": "default"}, {"name": "tool_use", "template": "{{ tools[0].name }}"}]}`
	for name, files := range map[string]map[string]string{
		"list":  {"tokenizer_config.json": config},
		"files": {"tokenizer_config.json": `{}`, "chat_template.jinja": "default", "additional_chat_templates/tool_use.jinja": "{{ tools[0].name }}"},
	} {
		dir := t.TempDir()
		for name, text := range files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		var s Source
		if err := s.ReadFolder(dir); err != nil {
			t.Fatal(err)
		}
		template, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		for tools, want := range map[string]string{"": "default", "null": "default", `[{"name": "f"}]`: "f"} {
			if got, err := template.Render([]json.RawMessage{json.RawMessage(`{"role": "user"}`)}, Options{Tools: json.RawMessage(tools)}); err != nil || got != want {
				t.Errorf("%s, tools %q: %q, %v; want %q", name, tools, got, err, want)
			}
		}
	}
}

// Claim (transformers' apply_chat_template): what messages and variables are not is an error that names the position.
func TestWrongMessages(t *testing.T) {
	template, err := New(Source{Text: "{{ messages[0].content }}{{ x }}"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		message string
		o       Options
		says    string
	}{
		{`[1]`, Options{}, "message 0: the value is not an object"},
		{`{"a": "\ud800"}`, Options{}, `message 0: byte 7: \ud800 is half of a surrogate pair`},
		{"{\"a\": \"\xff\"}", Options{}, "message 0: the value is not valid UTF-8"},
		{`{"a": 1e999}`, Options{}, "message 0: 1e999 is beyond the range of a float"},
		{`{}`, Options{Variables: json.RawMessage(`[]`)}, "the variables of the chat template: the value is not an object"},
		{`{}`, Options{Variables: json.RawMessage(`{"tools": 1}`)}, "the variable tools cannot be set, because the request has its own field of that name"},
		{`{}`, Options{Documents: json.RawMessage(`["a"]`)}, "documents: entry 0 of the list is not an object"},
		{`{"content": "a"}`, Options{ContinueFinalMessage: true, AddGenerationPrompt: true}, "continue_final_message and add_generation_prompt cannot both be set"},
		{`{"content": null}`, Options{ContinueFinalMessage: true}, "continue_final_message: the last message has no content"},
		{`{"content": 1}`, Options{ContinueFinalMessage: true}, "continue_final_message: the last message's content is not text"},
		{`{"content": [{"type": "image"}]}`, Options{ContinueFinalMessage: true}, "continue_final_message: the last message has no text to continue"},
	} {
		if _, err := template.Render([]json.RawMessage{json.RawMessage(c.message)}, c.o); err == nil || err.Error() != c.says {
			t.Errorf("%s: %v, want %s", c.message, err, c.says)
		}
	}
	if _, err := template.Render(nil, Options{}); err == nil {
		t.Error("no messages, and no error")
	}
}

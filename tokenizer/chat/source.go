package chat

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"

	"monotron/internal/exitcode"
	"monotron/internal/gguf"
	"monotron/tokenizer/chat/jinja"
	"monotron/tokenizer/ggvocab"
)

// mostBytes is the largest file that is read.
const mostBytes = 16 << 20

// mostOfFile is the largest template that a flag names.
const mostOfFile = 1 << 20

// Source is a template with what it speaks of.
type Source struct {
	Text     string            // Jinja; "": not known yet
	ToolUse  string            // the template for conversations with tools; "": Text is
	BOS, EOS string            // tokens of the tokenizer; "": it has none
	Others   map[string]string // more of them, by the names that templates use: pad_token
}

// tokenNames are the special tokens that templates see where the tokenizer has them.
var tokenNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

func (s *Source) token(name string) string {
	switch name {
	case "bos_token":
		return s.BOS
	case "eos_token":
		return s.EOS
	}
	return s.Others[name]
}

// ReadFile is the text of a template that a flag names, which must not be empty: an empty text would mean the
// template of the tokenizer. A template that cannot be parsed is an error with the file's name.
func ReadFile(path string) (text string, err error) {
	data, err := exitcode.ReadFile(path, mostOfFile)
	if err != nil {
		return "", err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return "", exitcode.Errorf(exitcode.BadData, "%s is empty; write a template in Jinja, or leave the flag out to use the template of the tokenizer", path)
	}
	if _, err := jinja.Parse(string(data)); err != nil {
		return "", exitcode.Errorf(exitcode.BadData, "%s cannot be read as a chat template: %w", path, err)
	}
	return string(data), nil
}

// ReadFolder takes what Text, BOS and EOS lack from the files of a tokenizer's folder:
// chat_template.jinja, or chat_template in tokenizer_config.json, where of several by name
// those called default and tool_use count. As in transformers the file goes before the entry, and
// more templates by name are in the folder additional_chat_templates. dir may also
// be a GGUF file, whose metadata has all of it.
func (s *Source) ReadFolder(dir string) error {
	if dir == "" {
		return nil
	}
	if gguf.Is(dir) {
		return s.within(dir)
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		dir = filepath.Dir(dir)
	}
	if err := s.readTemplates(dir); err != nil {
		return err
	}
	for _, file := range []string{"tokenizer_config.json", "special_tokens_map.json"} {
		if err := s.read(filepath.Join(dir, file)); err != nil {
			return err
		}
	}
	return nil
}

// readTemplates takes the template from the file chat_template.jinja, and that for tools next to it.
func (s *Source) readTemplates(dir string) error {
	if s.Text != "" {
		return nil
	}
	for _, f := range []struct {
		name string
		into *string
	}{{"chat_template.jinja", &s.Text}, {filepath.Join("additional_chat_templates", "tool_use.jinja"), &s.ToolUse}} {
		data, err := exitcode.ReadFile(filepath.Join(dir, f.name), mostBytes)
		if exitcode.CodeOf(err) == exitcode.NoInput {
			return nil
		}
		if err != nil {
			return exitcode.With(exitcode.IO, err)
		}
		*f.into = string(data)
	}
	return nil
}

func (s *Source) read(path string) error {
	data, err := exitcode.ReadFile(path, mostBytes)
	if exitcode.CodeOf(err) == exitcode.NoInput {
		return nil
	}
	if err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	return s.take(path, data)
}

// within takes what s lacks from the metadata of a GGUF file.
func (s *Source) within(path string) error {
	files, err := ggvocab.Path(path)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.Name == "tokenizer_config.json" {
			return s.take(path, f.Data)
		}
	}
	return nil
}

// take takes what s lacks from the content of a tokenizer_config.json; path is for messages.
func (s *Source) take(path string, data []byte) error {
	var f map[string]json.RawMessage
	if err := exitcode.JSON(path, data, &f); err != nil {
		return err
	}
	if s.Text == "" {
		s.Text, s.ToolUse = templatesOf(f["chat_template"])
	}
	for _, name := range tokenNames {
		var text token
		if raw := f[name]; len(raw) > 0 && s.token(name) == "" {
			if err := json.Unmarshal(raw, &text); err != nil {
				return exitcode.Errorf(exitcode.BadData, "%s: %s: %w", path, name, err)
			}
			s.set(name, string(text))
		}
	}
	return nil
}

func (s *Source) set(name, text string) {
	switch name {
	case "bos_token":
		s.BOS = text
	case "eos_token":
		s.EOS = text
	default:
		if s.Others == nil {
			s.Others = map[string]string{}
		}
		s.Others[name] = text
	}
}

// templatesOf are the one template, or those of a list called default and tool_use.
func templatesOf(raw json.RawMessage) (text, tools string) {
	if json.Unmarshal(raw, &text) == nil {
		return text, ""
	}
	var named []struct{ Name, Template string }
	json.Unmarshal(raw, &named)
	for _, n := range named {
		switch n.Name {
		case "default":
			text = n.Template
		case "tool_use":
			tools = n.Template
		}
	}
	return text, tools
}

// token is written as its text, or as an object with it.
type token string

func (t *token) UnmarshalJSON(data []byte) error {
	var text string
	var object struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(data, &text) != nil {
		if err := json.Unmarshal(data, &object); err != nil {
			return err
		}
		text = object.Content
	}
	*t = token(text)
	return nil
}

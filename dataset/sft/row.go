package sft

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"monotron/internal/argv"
	"monotron/tokenizer"
)

// row is a line with the fields of one kind. Which kind it is, the fields say.
type row struct {
	kind               kind
	messages           []json.RawMessage // of a conversation; those of the prompt first
	prompts            int               // messages that belong to the prompt, of a promptMessages row
	prompt, completion string
	text               string
	ids                []int32
	learned            []bool // by id
	tools, variables   json.RawMessage
	unused             string // fields with content that a row of this kind does not read
}

// kind is what a row is.
type kind int

const (
	conversation   kind = iota // messages
	promptMessages             // prompt and completion are lists of messages
	promptText                 // prompt and completion are texts
	plainText                  // text
	tokenRow                   // input_ids
)

// fieldError names the field that is wrong.
func fieldError(field, format string, args ...any) error {
	return fmt.Errorf("field %q: %w", field, fmt.Errorf(format, args...))
}

// fields of a row.
type fields map[string]json.RawMessage

func (f fields) has(name string) bool {
	raw, ok := f[name]
	return ok && string(raw) != "null"
}

// parse reads a line.
func parse(text []byte, template bool) (*row, error) {
	f, err := object(text, `{"messages": [...]}`)
	if err != nil {
		return nil, err
	}
	r, read, err := f.row(template)
	if err != nil {
		return nil, err
	}
	r.unused = f.unused(read...)
	return r, f.options(r)
}

// contents are the fields that hold what a row teaches, in one kind of row or another.
var contents = []string{"messages", "conversations", "input_ids", "prompt", "completion", "instruction", "input", "output", "text", "chosen", "rejected"}

// unused names the fields of the row that hold something to learn and are not among those that are read; "": none.
func (f fields) unused(read ...string) string {
	var list []string
	for _, name := range contents {
		if text := string(f[name]); f.has(name) && text != `""` && text != "[]" && !slices.Contains(read, name) {
			list = append(list, name)
		}
	}
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprintf("%s (in rows that have %s, only these fields are read)", argv.And(list...), argv.And(read...))
}

// object reads a line as fields; example is for the error.
func object(text []byte, example string) (f fields, err error) {
	if !utf8.Valid(text) {
		return nil, errors.New("the row is not UTF-8; convert the file to UTF-8; " + tokenizer.Latin1)
	}
	if err := json.Unmarshal(text, &f); err != nil {
		if t := bytes.TrimSpace(text); len(t) > 0 && t[0] != '{' && json.Valid(t) {
			return nil, fmt.Errorf("the row is not an object; write JSON objects, one per line or in an array, as in %s", example)
		}
		return nil, fmt.Errorf("the row is not JSON: %w", err)
	}
	return f, nil
}

// row finds the kind of a row by its fields; read are those that it reads.
func (f fields) row(template bool) (r *row, read []string, err error) {
	switch {
	case f.has("messages"):
		messages, err := messageList("messages", f["messages"])
		return &row{kind: conversation, messages: messages}, []string{"messages"}, err
	case f.has("conversations"):
		r, err = f.conversations()
		return r, []string{"conversations"}, err
	case f.has("input_ids"):
		r, err = f.tokens()
		return r, []string{"input_ids"}, err
	case f.has("prompt") && f.has("completion"):
		r, err = f.promptCompletion()
		return r, []string{"prompt", "completion"}, err
	case f.has("instruction") && f.has("output"):
		r, err = f.alpaca(template)
		return r, []string{"instruction", "input", "output"}, err
	case f.has("text"):
		text, err := f.string("text")
		return &row{kind: plainText, text: text}, []string{"text"}, err
	case f.has("chosen") || f.has("rejected"):
		return nil, nil, errors.New("the row has chosen and rejected answers, which preference tuning learns from (--tuning dpo, ipo, orpo, simpo or kto); supervised tuning needs messages, or prompt and completion")
	}
	return nil, nil, fmt.Errorf("the row has the fields %s; it needs one of these: messages; conversations; prompt and completion; instruction and output; text; input_ids", f.names())
}

// names lists the fields of the row for an error; a field that is null counts as missing.
func (f fields) names() string {
	var names []string
	for name := range f {
		text := fmt.Sprintf("%.40q", name)
		if !f.has(name) {
			text += " (null)"
		}
		names = append(names, text)
	}
	if slices.Sort(names); len(names) > 8 {
		names = append(names[:8], "...")
	}
	if len(names) == 0 {
		return "(none)"
	}
	return strings.Join(names, ", ")
}

// options are what a template may use in addition to the messages.
func (f fields) options(r *row) error {
	if f.has("tools") {
		raw := f["tools"]
		var text string
		if json.Unmarshal(raw, &text) == nil { // a list as text, as data sets on the hub keep it
			if raw = json.RawMessage(text); !json.Valid(raw) {
				return fieldError("tools", "the text is not JSON; write a list of tools")
			}
		}
		var list []map[string]json.RawMessage
		if string(raw) != "null" && json.Unmarshal(raw, &list) != nil {
			return fieldError("tools", "the value is not a list of objects")
		}
		r.tools = raw
	}
	if f.has("chat_template_kwargs") {
		var object map[string]json.RawMessage
		if json.Unmarshal(f["chat_template_kwargs"], &object) != nil {
			return fieldError("chat_template_kwargs", "the value is not an object; write the template's arguments as in {\"enable_thinking\": false}")
		}
		r.variables = f["chat_template_kwargs"]
	}
	return nil
}

func (f fields) string(name string) (text string, err error) {
	if json.Unmarshal(f[name], &text) != nil {
		return "", fieldError(name, "the value is not a string")
	}
	return text, nil
}

// optional is string, "" where the field is absent.
func (f fields) optional(name string) (string, error) {
	if !f.has(name) {
		return "", nil
	}
	return f.string(name)
}

// messageList reads a list of messages, each with a role.
func messageList(field string, raw json.RawMessage) (list []json.RawMessage, err error) {
	if json.Unmarshal(raw, &list) != nil {
		return nil, fieldError(field, "the value is not a list of messages")
	}
	if len(list) == 0 {
		return nil, fieldError(field, "the list is empty")
	}
	for i, m := range list {
		var message map[string]json.RawMessage
		var role string
		if json.Unmarshal(m, &message) != nil {
			return nil, fieldError(field, "message %d is not an object", i)
		}
		if json.Unmarshal(message["role"], &role) != nil || role == "" {
			return nil, fieldError(field, "message %d has no role; give it the role system, user, assistant or tool", i)
		}
	}
	return list, nil
}

func roleOf(message json.RawMessage) (role string) {
	var m fields                    // a struct would take Role and ROLE for role
	_ = json.Unmarshal(message, &m) // messageList has read both
	_ = json.Unmarshal(m["role"], &role)
	return role
}

// promptCompletion reads both fields as texts, or both as lists of messages.
func (f fields) promptCompletion() (*row, error) {
	r := &row{kind: promptText}
	if json.Unmarshal(f["prompt"], &r.prompt) == nil {
		var err error
		r.completion, err = f.string("completion")
		return r, err
	}
	prompt, err := messageList("prompt", f["prompt"])
	if err != nil {
		return nil, err
	}
	completion, err := messageList("completion", f["completion"])
	r.kind, r.messages, r.prompts = promptMessages, append(prompt, completion...), len(prompt)
	return r, err
}

// ignored is the label of a token that the loss does not learn.
const ignored = -100

// tokens reads input_ids with labels, assistant_masks or completion_mask; of several, a token is
// learned where all of them say so.
func (f fields) tokens() (*row, error) {
	// The ids.
	ids, err := f.integers("input_ids", "token ids")
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, fieldError("input_ids", "the list is empty")
	}
	r := &row{kind: tokenRow, ids: ids}
	// Every token is learned unless one of the fields says otherwise.
	r.learned = slices.Repeat([]bool{true}, len(r.ids))
	for _, name := range []string{"labels", "assistant_masks", "completion_mask"} {
		if !f.has(name) {
			continue
		}
		list, err := f.mask(name)
		if name == "labels" {
			list, err = f.integers(name, "integers")
		}
		if err != nil {
			return nil, err
		}
		if len(list) != len(r.ids) {
			return nil, fieldError(name, "the list has %d entries, but input_ids has %d", len(list), len(r.ids))
		}
		// A label is the token itself or ignored; a mask is 0 or 1.
		for i, v := range list {
			switch {
			case name != "labels" && v != 0 && v != 1:
				return nil, fieldError(name, "entry %d is %d; it must be 0 or 1", i, v)
			case name == "labels" && v != ignored && v != r.ids[i]:
				return nil, fieldError(name, "entry %d is %d; it must be the token id %d, or %d to leave the token out of the loss", i, v, r.ids[i], ignored)
			}
			if name == "labels" && v == ignored || name != "labels" && v == 0 {
				r.learned[i] = false
			}
		}
	}
	return r, nil
}

// mask reads a list of 0 and 1, or of false and true.
func (f fields) mask(name string) ([]int32, error) {
	var list []*bool
	if json.Unmarshal(f[name], &list) != nil || slices.Contains(list, nil) {
		return f.integers(name, "0 and 1")
	}
	out := make([]int32, len(list))
	for i, v := range list {
		if *v {
			out[i] = 1
		}
	}
	return out, nil
}

// integers reads a list; what names its entries. A null, which JSON would read as 0, is an error.
func (f fields) integers(name, what string) ([]int32, error) {
	var list []*int32
	if json.Unmarshal(f[name], &list) != nil {
		return nil, fieldError(name, "the value is not a list of %s", what)
	}
	out := make([]int32, len(list))
	for i, v := range list {
		if v == nil {
			return nil, fieldError(name, "entry %d is null; the list must have only %s", i, what)
		}
		out[i] = *v
	}
	return out, nil
}

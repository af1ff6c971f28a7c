package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"

	"monotron/internal/exitcode"
)

// Template renders conversations. It is safe for several goroutines at once.
type Template struct {
	source Source
	inner  *exec.Template
}

// Options are what a template may ask for besides the messages.
type Options struct {
	AddGenerationPrompt bool
	Tools, Documents    json.RawMessage // none: the template sees none
	Variables           json.RawMessage // an object: more names for the template
	Now                 time.Time       // zero: now
}

// New parses a template; a source without one is exitcode.Usage.
func New(s Source) (t *Template, err error) {
	if s.Text == "" {
		return nil, exitcode.Errorf(exitcode.Usage, "this model's tokenizer has no chat template; --chat-template names a file with one, and completions take texts as they are")
	}
	defer caught(&err)
	c := config.New()
	c.TrimBlocks, c.LeftStripBlocks = true, true
	files, err := loaders.NewFileSystemLoader("")
	if err != nil {
		return nil, err
	}
	const root = "chat template"
	only, err := loaders.NewShiftedLoader(root, bytes.NewReader([]byte(s.Text)), files)
	if err != nil {
		return nil, err
	}
	inner, err := exec.NewTemplate(root, c, only, environment())
	if err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "the chat template cannot be read: %w", err)
	}
	return &Template{s, inner}, nil
}

// caught makes an error of a panic inside the library.
func caught(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the template engine failed: %v", p)
	}
}

// Render writes the messages, each an object with at least a role.
func (t *Template) Render(messages []json.RawMessage, o Options) (text string, err error) {
	defer caught(&err)
	if len(messages) == 0 {
		return "", errors.New("there are no messages")
	}
	o.Variables = orNone(o.Variables, "{}")
	keys := order{}
	more, err := keys.value(o.Variables)
	variables, is := more.(map[string]any)
	if err != nil || !is {
		return "", errors.New("the variables are no object")
	}
	var turns []any
	for _, m := range messages {
		turn, err := keys.value(m)
		if err != nil {
			return "", err
		}
		turns = append(turns, filled(turn, keys))
	}
	now := o.Now
	if now.IsZero() {
		now = time.Now()
	}
	variables["messages"] = turns
	for name, raw := range map[string]json.RawMessage{"tools": o.Tools, "documents": o.Documents} {
		if variables[name], err = keys.value(orNone(raw, "null")); err != nil {
			return "", err
		}
	}
	variables["add_generation_prompt"], variables["bos_token"], variables["eos_token"] = o.AddGenerationPrompt, t.source.BOS, t.source.EOS
	variables["raise_exception"] = func(message string) (string, error) { return "", errors.New(message) }
	variables["strftime_now"] = func(format string) string { return strftime(now, format) }
	variables[orderName] = keys
	l := newLimits()
	variables[limitsName] = l
	if err = t.inner.Execute(l, exec.NewContext(variables)); l.err != nil {
		err = l.err // without the tags around it
	}
	if err != nil {
		return "", err
	}
	return l.text.String(), nil
}

func orNone(raw json.RawMessage, none string) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage(none)
	}
	return raw
}

// filled is a turn as transformers hands it on: keys without a value are not there, and a
// reason has both names.
func filled(turn any, keys order) any {
	m, is := turn.(map[string]any)
	if !is {
		return turn
	}
	at := reflect.ValueOf(m).Pointer()
	keys[at] = slices.DeleteFunc(keys[at], func(k string) bool { return m[k] == nil })
	for k, v := range m {
		if v == nil {
			delete(m, k)
		}
	}
	names := []string{"reasoning_content", "thinking", "reasoning"}
	for _, from := range names {
		reason, found := m[from]
		for _, to := range names[:2] {
			if _, there := m[to]; found && !there {
				m[to] = reason
				keys[at] = append(keys[at], to)
			}
		}
	}
	return turn
}

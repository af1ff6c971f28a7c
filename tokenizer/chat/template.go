package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"monotron/internal/exitcode"
	"monotron/tokenizer/chat/jinja"
)

// Template renders conversations. It is safe for several goroutines at once.
type Template struct {
	source  Source
	inner   *jinja.Template
	toolUse *jinja.Template // renders conversations with tools; nil: inner does
}

// Options are what a template may ask for in addition to the messages.
type Options struct {
	AddGenerationPrompt  bool
	ContinueFinalMessage bool            // the text ends inside the last message, for the model to continue
	Tools, Documents     json.RawMessage // lists of objects; none: the template sees None
	Variables            json.RawMessage // an object: more names for the template
	Now                  time.Time       // zero: now
}

// Rendered is a conversation as text, with the bytes [from, to) that its generation blocks wrote.
type Rendered struct {
	Text  string
	Spans [][2]int
}

// New parses a template; a source without one is exitcode.Usage, a template that cannot be read
// exitcode.BadData.
func New(s Source) (*Template, error) {
	if s.Text == "" {
		return nil, exitcode.Errorf(exitcode.Usage, "the tokenizer of this model has no chat template; give a template with --chat-template FILE, or use completions, which accept plain text")
	}
	inner, err := jinja.Parse(s.Text)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "the chat template cannot be read: %w", err)
	}
	t := &Template{source: s, inner: inner}
	if s.ToolUse != "" {
		if t.toolUse, err = jinja.Parse(s.ToolUse); err != nil {
			return nil, exitcode.Errorf(exitcode.BadData, "the chat template tool_use cannot be read: %w", err)
		}
	}
	return t, nil
}

// chosen is the template for a conversation with these tools, and its text.
func (t *Template) chosen(tools json.RawMessage) (*jinja.Template, string) {
	if t.toolUse != nil && len(tools) > 0 && string(tools) != "null" {
		return t.toolUse, t.source.ToolUse
	}
	return t.inner, t.source.Text
}

// Render writes the messages, each an object. What raise_exception was given is the error's
// text.
func (t *Template) Render(messages []json.RawMessage, o Options) (string, error) {
	out, err := t.render(messages, o)
	return out.Text, err
}

// RenderSpans is Render with the spans of generation blocks. Blocks whose position in the text is
// not known, because they write inside a macro, a filter, a set block or a recursive loop, are
// an error.
func (t *Template) RenderSpans(messages []json.RawMessage, o Options) (Rendered, error) {
	out, err := t.render(messages, o)
	if err == nil && out.LostSpans {
		err = errors.New("a generation block of the chat template is inside a macro, filter, set block or recursive loop; move the block to where its text is written")
	}
	return Rendered{out.Text, out.Spans}, err
}

func (t *Template) render(messages []json.RawMessage, o Options) (none jinja.Rendered, err error) {
	if len(messages) == 0 {
		return none, errors.New("there are no messages")
	}
	// Messages as the template sees them.
	turns := make([]*jinja.Dict, len(messages))
	for i, m := range messages {
		if turns[i], err = turn(m); err != nil {
			return none, fmt.Errorf("message %d: %w", i, err)
		}
	}
	// A message to be continued gets a mark, at which the result is cut.
	var final *continuation
	if o.ContinueFinalMessage {
		if final, err = t.continued(turns, o); err != nil {
			return none, err
		}
	}
	variables, err := t.variables(turns, o)
	if err != nil {
		return none, err
	}
	now := o.Now
	if now.IsZero() {
		now = time.Now()
	}
	inner, _ := t.chosen(o.Tools)
	out, err := inner.Render(variables, jinja.Options{Now: now})
	if err == nil && final != nil {
		out.Text, err = final.cut(out.Text)
	}
	return out, err
}

// reserved are the variables that a render sets itself.
var reserved = []string{"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}

// variables are the names that the template sees: the tokenizer's tokens, those of the caller,
// which go before, and the conversation.
func (t *Template) variables(turns []*jinja.Dict, o Options) (*jinja.Dict, error) {
	// Tokens of the tokenizer, then what the caller gives.
	v := jinja.NewDict()
	for _, name := range tokenNames {
		if text := t.source.token(name); text != "" {
			v.Set(name, text)
		}
	}
	more, err := object(o.Variables)
	if err != nil {
		return nil, fmt.Errorf("the variables of the chat template: %w", err)
	}
	for _, name := range more.Names() {
		if slices.Contains(reserved, name) {
			return nil, fmt.Errorf("the variable %s cannot be set, because the request has its own field of that name", name)
		}
		v.Set(name, more.Get(name))
	}
	// The conversation, tools and documents.
	list := make([]jinja.Value, len(turns))
	for i, m := range turns {
		list[i] = m
	}
	v.Set("messages", jinja.NewList(list))
	for name, raw := range map[string]json.RawMessage{"tools": o.Tools, "documents": o.Documents} {
		objects, err := listOfObjects(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		v.Set(name, objects)
	}
	v.Set("add_generation_prompt", o.AddGenerationPrompt)
	return v, nil
}

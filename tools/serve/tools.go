package serve

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"regexp"

	"monotron/megatron/inference"
	"monotron/megatron/inference/schema"
	"monotron/tokenizer/chat"
)

// mostTools bounds the tools of a request.
const mostTools = 128

// toolsAsk are the fields about calls of tools, in addition to the tools themselves.
type toolsAsk struct {
	Choice    json.RawMessage `json:"tool_choice"`
	Parallel  *bool           `json:"parallel_tool_calls"`
	Functions json.RawMessage `json:"functions"` // OpenAI's older field
}

// tool is a function that the model may call.
type tool struct {
	Type     string `json:"type"`
	Function struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
		Strict     bool            `json:"strict"`
	} `json:"function"`
}

var toolName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// calls reads calls of tools out of the texts of an answer. A nil one leaves texts as they are.
type calls struct {
	format *chat.CallFormat
	tools  []chat.Tool
	one    bool           // the first call alone counts
	texts  map[int]string // of streamed answers, by their number
	sent   map[int]int    // bytes of them that have been sent
}

// calls checks the fields about tools, and keeps the request's texts within calls where tool_choice
// or a tool's strict asks for it. nil: no tools, or tool_choice none, with which the model does not see them.
func (q *chatAsk) calls(all *[]error, l *loaded, base *inference.Request) *calls {
	refuse := func(param, format string, args ...any) *calls {
		*all = append(*all, wrong(param, format, args...))
		return nil
	}
	if given(q.Functions) {
		return refuse("functions", "not supported: use tools")
	}
	tools, strict, err := toolsOf(q.Tools)
	if err != nil {
		return refuse("tools", "%s", err)
	}
	choice, err := choiceOf(q.Choice, tools)
	switch {
	case err != nil:
		return refuse("tool_choice", "%s", err)
	case len(tools) == 0 && choice != "auto" && choice != "none":
		return refuse("tool_choice", "this field needs tools")
	case len(tools) == 0 || choice == "none":
		q.Tools = nil
		return nil
	case l.Tok == nil:
		return refuse("tools", "this model has no tokenizer")
	case l.NoChat != nil:
		return nil // which render says
	case q.ContinueFinal:
		return refuse("tools", "tools cannot be combined with continue_final_message")
	}
	format, err := l.calls()
	if err != nil {
		return refuse("tools", "%s", err)
	}
	c := &calls{format: format, tools: tools, one: format.Single || q.Parallel != nil && !*q.Parallel, texts: map[int]string{}, sent: map[int]int{}}
	if choice != "auto" || strict {
		if base.Grammar != nil {
			return refuse("response_format", "this field cannot be combined with calls that tool_choice or strict requires")
		}
		if base.Grammar, err = c.grammar(choice); err != nil {
			return refuse("tools", "%s", err)
		}
		base.Vocabulary = l.words()
		if err := base.Grammar.Spelled(base.Vocabulary); err != nil {
			return refuse("tools", "%s", err)
		}
	}
	return c
}

// toolsOf reads the list of tools. strict: one of them asks that arguments are of its schema.
func toolsOf(raw json.RawMessage) (list []chat.Tool, strict bool, err error) {
	var all []tool
	if given(raw) && json.Unmarshal(raw, &all) != nil {
		return nil, false, fmt.Errorf("the value must be a list of {type, function}")
	}
	if len(all) > mostTools {
		return nil, false, fmt.Errorf("there are %d tools; at most %d are allowed", len(all), mostTools)
	}
	known := map[string]bool{}
	// The model distinguishes names, so each is there once.
	for i, t := range all {
		name := t.Function.Name
		switch {
		case t.Type != "function":
			return nil, false, fmt.Errorf("tool %d has the type %.40q; only function is supported", i, t.Type)
		case !toolName.MatchString(name):
			return nil, false, fmt.Errorf("tool %d has the name %.80q; a name has 1 to 64 letters, digits, dots, hyphens and underscores", i, name)
		case known[name]:
			return nil, false, fmt.Errorf("two tools have the name %s", name)
		}
		known[name] = true
		// Without parameters a function takes an object with anything in it.
		parameters := t.Function.Parameters
		var object map[string]json.RawMessage
		if !given(parameters) {
			parameters = json.RawMessage(`{"type": "object"}`)
		} else if json.Unmarshal(parameters, &object) != nil {
			return nil, false, fmt.Errorf("the parameters of tool %d are not an object", i)
		}
		list, strict = append(list, chat.Tool{Name: name, Parameters: parameters}), strict || t.Function.Strict
	}
	return list, strict, nil
}

// choiceOf reads tool_choice: auto, none, required, or "=" and the name of a tool.
func choiceOf(raw json.RawMessage, tools []chat.Tool) (string, error) {
	if !given(raw) {
		return "auto", nil
	}
	var word string
	if json.Unmarshal(raw, &word) == nil {
		switch word {
		case "auto", "none", "required":
			return word, nil
		}
		return "", fmt.Errorf("%.40q is not supported; choose from auto, none, required and {type, function}", word)
	}
	var one tool
	if json.Unmarshal(raw, &one) != nil || one.Type != "function" {
		return "", fmt.Errorf("the value is not supported; choose from auto, none, required and {type: function, function: {name}}")
	}
	for _, t := range tools {
		if t.Name == one.Function.Name {
			return "=" + t.Name, nil
		}
	}
	return "", fmt.Errorf("the tool %.80q is not in tools", one.Function.Name)
}

// grammar is that of texts with calls as tool_choice asks for them. A template whose arguments are
// not JSON gets one call as a JSON object instead.
func (c *calls) grammar(choice string) (*schema.Grammar, error) {
	if _, _, ok := c.format.Around(c.tools[0].Name); !ok {
		if choice == "auto" {
			return nil, fmt.Errorf("strict is not supported for this model, whose chat template does not write arguments as JSON; use tool_choice required instead")
		}
		c.format, c.one = chat.ObjectCalls(), true
	}
	parts := schema.Calls{Optional: choice == "auto", Opening: c.format.Opening(), One: c.one || choice[0] == '='}
	parts.Begin, parts.Again, parts.End = c.format.Frame()
	for _, t := range c.tools {
		if choice[0] == '=' && choice[1:] != t.Name {
			continue
		}
		open, close, _ := c.format.Around(t.Name)
		parts.Tools = append(parts.Tools, schema.Tool{Open: open, Close: close, Arguments: argumentsSchema(t.Parameters)})
	}
	return schema.CompileCalls(parts)
}

// argumentsSchema is a tool's schema, which is of an object even where it does not say so.
func argumentsSchema(parameters json.RawMessage) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal(parameters, &object) == nil && len(object) == 0 {
		return json.RawMessage(`{"type": "object"}`)
	}
	return parameters
}

// next takes more of the text with number i, and gives what of it is content and can be sent, and at
// the end its calls. What may become a call is kept back until then.
func (c *calls) next(i int, text string, ended bool) (content string, made []map[string]any) {
	if c == nil {
		return text, nil
	}
	c.texts[i] += text
	full := c.texts[i]
	if !ended {
		waiting, _ := c.format.Kept(full)
		content = full[min(c.sent[i], len(full)-waiting) : len(full)-waiting]
		c.sent[i] += len(content)
		return content, nil
	}
	before, list := c.format.Read(full, c.tools)
	if c.one && len(list) > 1 {
		list = list[:1]
	}
	for at, call := range list {
		made = append(made, map[string]any{"index": at, "id": newCallID(), "type": "function", "function": map[string]any{"name": call.Name, "arguments": call.Arguments}})
	}
	return before[min(c.sent[i], len(before)):], made
}

// newCallID is nine letters and digits, as some templates require.
func newCallID() string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	var b [9]byte
	rand.Read(b[:])
	for i := range b {
		b[i] = letters[int(b[i])%len(letters)]
	}
	return string(b[:])
}

// reasonOfCalls is the end of a text that has calls.
func reasonOfCalls(reason any) any {
	if reason == "stop" {
		return "tool_calls"
	}
	return reason
}

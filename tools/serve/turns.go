package serve

import (
	"encoding/json"
	"errors"
	"fmt"

	"monotron/tokenizer/chat"
)

// turns are the messages of a request, checked as far as every template needs, with the arguments
// of calls in the form that this model's template reads.
func (l *loaded) turns(raw json.RawMessage) (list []message, err error) {
	if !given(raw) {
		return nil, wrong("messages", "the field is missing; it must be a list of {role, content}")
	}
	if json.Unmarshal(raw, &list) != nil {
		return nil, wrong("messages", "the value must be a list of {role, content}")
	}
	if len(list) == 0 {
		return nil, wrong("messages", "the list is empty")
	}
	for i, m := range list {
		var turn map[string]any
		if json.Unmarshal(m, &turn) != nil {
			return nil, wrong("messages", "message %d is not an object", i)
		}
		err := checkTurn(turn)
		if err == nil && turn["tool_calls"] != nil {
			list[i], err = l.turnWithCalls(m)
		}
		if err != nil {
			return nil, wrong("messages", "message %d %s", i, err)
		}
	}
	return list, nil
}

// checkTurn checks that a turn is a text or a list of texts, which is what models here know.
// The template sees the list as it is. With calls, content is optional.
func checkTurn(turn map[string]any) error {
	role, is := turn["role"].(string)
	if !is {
		return errors.New("must be an object with a role")
	}
	if turn["tool_calls"] != nil && role != "assistant" {
		return errors.New("has tool_calls, which only an assistant's message may have")
	}
	if turn["content"] == nil && turn["tool_calls"] != nil {
		return nil
	}
	if parts, is := turn["content"].([]any); is {
		for _, p := range parts {
			part, _ := p.(map[string]any)
			if _, is := part["text"].(string); !is {
				return errors.New("has content that is not text")
			}
		}
		return nil
	}
	if _, is := turn["content"].(string); !is {
		return errors.New("has content that is not text")
	}
	return nil
}

// turnWithCalls is an assistant's message whose calls have their arguments as the template
// reads them: clients send JSON within a string, and most templates read an object.
func (l *loaded) turnWithCalls(m message) (message, error) {
	var turn struct {
		Content json.RawMessage   `json:"content"`
		Calls   []json.RawMessage `json:"tool_calls"`
	}
	if json.Unmarshal(m, &turn) != nil {
		return nil, errors.New("has tool_calls that are not a list of objects")
	}
	asText := false
	if l.NoChat == nil {
		if format, err := l.calls(); err == nil {
			asText = format.TextArguments
		}
	}
	var err error
	for i, call := range turn.Calls {
		if turn.Calls[i], err = callAsRead(call, i, asText); err != nil {
			return nil, err
		}
	}
	list, err := json.Marshal(turn.Calls)
	if err != nil {
		return nil, err
	}
	if m, err = chat.With(m, "tool_calls", list); err == nil && !given(turn.Content) {
		m, err = chat.With(m, "content", json.RawMessage(`""`)) // which templates read without asking whether it is there
	}
	return m, err
}

// callAsRead is call i with its arguments as the template reads them; all its members keep their order.
func callAsRead(call json.RawMessage, i int, asText bool) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(call, &members) != nil {
		return nil, errors.New("has tool_calls that are not a list of objects")
	}
	var function map[string]json.RawMessage
	var name string
	if json.Unmarshal(members["function"], &function) != nil || json.Unmarshal(function["name"], &name) != nil {
		return nil, fmt.Errorf("has a call (number %d) without the name of a function", i)
	}
	arguments, err := argumentsOf(function["arguments"], asText)
	if err != nil {
		return nil, fmt.Errorf("has a call (number %d) of %.80q whose arguments are not a JSON object", i, name)
	}
	changed, err := chat.With(members["function"], "arguments", arguments)
	if err != nil {
		return nil, err
	}
	return chat.With(call, "function", changed)
}

// argumentsOf reads arguments that are an object, or one as JSON within a string, and gives them as
// text or as an object. Absent ones are an object without members.
func argumentsOf(raw json.RawMessage, asText bool) (json.RawMessage, error) {
	var text string
	switch {
	case !given(raw):
		text = "{}"
	case json.Unmarshal(raw, &text) != nil:
		text = string(raw)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil || object == nil {
		return nil, errors.Join(errors.New("not an object"), err)
	}
	if asText {
		return json.Marshal(text)
	}
	return json.RawMessage(text), nil
}

package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"monotron/tokenizer/chat/jinja"
)

// reasonNames are the keys of a message's reasoning. Templates read the first two.
var reasonNames = []string{"reasoning_content", "thinking", "reasoning"}

// turn is a message as transformers hands it on: keys whose value is null are dropped, and
// reasoning has both names that templates read.
func turn(raw json.RawMessage) (*jinja.Dict, error) {
	m, err := object(raw)
	if err != nil {
		return nil, err
	}
	m = m.Without(func(_, value jinja.Value) bool { return value == jinja.None{} })
	for _, name := range reasonNames {
		reason := m.Get(name)
		if reason == nil {
			continue
		}
		filled := jinja.NewDict()
		filled.Set("thinking", reason)
		for _, key := range m.Names() {
			filled.Set(key, m.Get(key))
		}
		filled.Set("reasoning_content", reason)
		return filled, nil
	}
	return m, nil
}

// object reads a JSON object; nothing and null are an empty one.
func object(raw json.RawMessage) (*jinja.Dict, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return jinja.NewDict(), nil
	}
	v, err := jinja.FromJSON(raw)
	if err != nil {
		return nil, err
	}
	d, is := v.(*jinja.Dict)
	if !is {
		return nil, errors.New("the value is not an object")
	}
	return d, nil
}

// listOfObjects reads tools or documents; nothing and null are None.
func listOfObjects(raw json.RawMessage) (jinja.Value, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return jinja.None{}, nil
	}
	v, err := jinja.FromJSON(raw)
	if err != nil {
		return nil, err
	}
	list, is := v.(*jinja.List)
	if !is {
		return nil, errors.New("the value is not a list of objects")
	}
	for i, item := range list.Items() {
		if _, is := item.(*jinja.Dict); !is {
			return nil, fmt.Errorf("entry %d of the list is not an object", i)
		}
	}
	return v, nil
}

// With is a JSON object with one member set; the others keep their order, which templates see.
func With(object json.RawMessage, name string, value json.RawMessage) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.Join(errors.New("the value is not an object"), err)
	}
	out, set := []byte{'{'}, false
	write := func(key string, v json.RawMessage) error {
		if len(out) > 1 {
			out = append(out, ',')
		}
		k, err := json.Marshal(key)
		out = append(append(append(out, k...), ':'), v...)
		return err
	}
	for d.More() {
		token, err := d.Token()
		key, _ := token.(string)
		var v json.RawMessage
		if err = errors.Join(err, d.Decode(&v)); err != nil {
			return nil, err
		}
		if key == name {
			if set {
				continue
			}
			v, set = value, true
		}
		if err := write(key, v); err != nil {
			return nil, err
		}
	}
	if !set {
		if err := write(name, value); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

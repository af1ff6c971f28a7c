package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// fields is a JSON object that keeps the order of its names. A nil one has none.
type fields struct {
	names  []string
	values map[string]any
}

// at is the value of a name; nil where there is none.
func (f *fields) at(name string) any {
	if f == nil {
		return nil
	}
	return f.values[name]
}

func (f *fields) has(name string) bool { return f != nil && slices.Contains(f.names, name) }

// list is a value that is a list; nil where it is none.
func (f *fields) list(name string) []any {
	list, _ := f.at(name).([]any)
	return list
}

func (f *fields) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range f.names {
		if i > 0 {
			b.WriteByte(',')
		}
		for j, v := range []any{name, f.values[name]} {
			if j > 0 {
				b.WriteByte(':')
			}
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(false)
			if err := e.Encode(v); err != nil {
				return nil, err
			}
			b.Truncate(b.Len() - 1) // the newline
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// decode reads one JSON value, objects as *fields.
func decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	v, err := value(d, 0)
	if err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("more than one value")
	}
	return v, nil
}

func value(d *json.Decoder, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	if depth > 4*deepest {
		return nil, errors.New("values are nested too deeply")
	}
	switch token {
	// An object keeps the order of its names; of a name that comes twice the last value counts.
	case json.Delim('{'):
		f := &fields{values: map[string]any{}}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := value(d, depth+1)
			if err != nil {
				return nil, err
			}
			text := fmt.Sprint(name) // a decoder gives texts only here
			if !f.has(text) {
				f.names = append(f.names, text)
			}
			f.values[text] = v
		}
		_, err := d.Token()
		return f, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := value(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	}
	return token, nil
}

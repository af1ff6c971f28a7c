package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// mostNestedJSON bounds the nesting of values from outside.
const mostNestedJSON = 200

// FromJSON reads one JSON value as Python's json.loads does: keys keep their order, ints of any
// size stay ints. Refused: text that is not UTF-8, lone surrogates, numbers beyond a float's
// range, ints of more than 4300 digits, nesting of more than 200.
func FromJSON(raw []byte) (Value, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("the value is not valid UTF-8")
	}
	if at := loneSurrogate(raw); at >= 0 {
		return nil, fmt.Errorf("byte %d: %s is half of a surrogate pair", at, raw[at:at+6])
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := nextJSON(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("byte %d: text follows the JSON value", d.InputOffset())
	}
	return v, nil
}

// loneSurrogate is where an escaped surrogate without its partner stands, -1 if there is none.
func loneSurrogate(raw []byte) int {
	unit := func(i int) uint64 {
		if i+6 > len(raw) || raw[i] != '\\' || raw[i+1] != 'u' {
			return 0
		}
		n, _ := strconv.ParseUint(string(raw[i+2:i+6]), 16, 16)
		return n
	}
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		switch n := unit(i); {
		case n >= 0xdc00 && n < 0xe000, n >= 0xd800 && n < 0xdc00 && (unit(i+6) < 0xdc00 || unit(i+6) >= 0xe000):
			return i
		case n >= 0xd800 && n < 0xdc00:
			i += 11
		default:
			i++
		}
	}
	return -1
}

func nextJSON(d *json.Decoder, depth int) (Value, error) {
	t, err := d.Token()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if depth > mostNestedJSON {
		return nil, fmt.Errorf("byte %d: values are nested more than %d levels deep", d.InputOffset(), mostNestedJSON)
	}
	switch t := t.(type) {
	case nil:
		return None{}, nil
	case json.Number:
		return numberFromJSON(string(t))
	case json.Delim:
		if t == '[' {
			return listFromJSON(d, depth)
		}
		return dictFromJSON(d, depth)
	}
	return t, nil
}

func listFromJSON(d *json.Decoder, depth int) (Value, error) {
	list := &List{items: []Value{}}
	for d.More() {
		v, err := nextJSON(d, depth+1)
		if err != nil {
			return nil, err
		}
		list.items = append(list.items, v)
	}
	_, err := d.Token()
	return list, err
}

func dictFromJSON(d *json.Decoder, depth int) (Value, error) {
	dict := NewDict()
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := nextJSON(d, depth+1)
		if err != nil {
			return nil, err
		}
		dict.Set(key.(string), v)
	}
	_, err := d.Token()
	return dict, err
}

func numberFromJSON(text string) (Value, error) {
	if strings.ContainsAny(text, ".eE") {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%.40s is beyond the range of a float", text)
		}
		return f, nil
	}
	if len(text) > mostDigits {
		return nil, fmt.Errorf("an int has more than %d digits", mostDigits)
	}
	b, good := new(big.Int).SetString(text, 10)
	if !good {
		return nil, fmt.Errorf("%.40s is not a number", text)
	}
	return normal(b), nil
}

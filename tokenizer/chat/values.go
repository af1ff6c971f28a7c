package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"reflect"
	"strconv"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// order remembers in which order the keys of objects came, by the map that holds them.
type order map[uintptr][]string

// value is JSON as templates see it: whole numbers are integers.
func (o order) value(raw json.RawMessage) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return o.next(d)
}

func (o order) next(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		return number(t)
	case json.Delim:
		if t == '[' {
			list := []any{}
			for d.More() {
				v, err := o.next(d)
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
			_, err = d.Token()
			return list, err
		}
		object, keys := map[string]any{}, []string{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			name, is := key.(string)
			if !is {
				return nil, errors.New("a key that is no text")
			}
			if _, twice := object[name]; !twice {
				keys = append(keys, name)
			}
			if object[name], err = o.next(d); err != nil {
				return nil, err
			}
		}
		o[reflect.ValueOf(object).Pointer()] = keys
		_, err = d.Token()
		return object, err
	}
	return t, nil
}

func number(n json.Number) (any, error) {
	if i, err := strconv.Atoi(string(n)); err == nil {
		return i, nil
	}
	if whole, is := new(big.Int).SetString(string(n), 10); is {
		return whole, nil
	}
	f, err := n.Float64()
	return f, err
}

// keys are an object's in their order; those of objects that a template made, as it may.
func (o order) keys(v map[string]any) []string {
	if keys, known := o[reflect.ValueOf(v).Pointer()]; known {
		return keys
	}
	var keys []string
	for _, k := range reflect.ValueOf(v).MapKeys() {
		keys = append(keys, k.String())
	}
	return keys
}

// write is json.dumps of Python: separators with a blank, text as it is.
func (o order) write(b *strings.Builder, v any, indent, depth int) error {
	if x, is := v.(*exec.Value); is {
		v = x.Interface()
	}
	line := func(depth int) {
		if indent >= 0 {
			b.WriteString("\n" + strings.Repeat(" ", indent*depth))
		}
	}
	between := ", "
	if indent >= 0 {
		between = ","
	}
	switch x := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(x))
	case string:
		b.WriteString(quoted(x))
	case float64:
		b.WriteString(pythonFloat(x))
	case *big.Int:
		b.WriteString(x.String())
	case map[string]any:
		if len(x) == 0 {
			b.WriteString("{}")
			return nil
		}
		b.WriteString("{")
		for i, k := range o.keys(x) {
			if i > 0 {
				b.WriteString(between)
			}
			line(depth + 1)
			b.WriteString(quoted(k) + ": ")
			if err := o.write(b, x[k], indent, depth+1); err != nil {
				return err
			}
		}
		line(depth)
		b.WriteString("}")
	default:
		return o.writeOther(b, reflect.ValueOf(v), between, line, indent, depth)
	}
	return nil
}

// writeOther is for what Go's kinds tell: numbers, lists, objects that a template made.
func (o order) writeOther(b *strings.Builder, v reflect.Value, between string, line func(int), indent, depth int) error {
	switch v.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		b.WriteString(strconv.FormatInt(v.Int(), 10))
	case reflect.Slice, reflect.Array:
		if v.Len() == 0 {
			b.WriteString("[]")
			return nil
		}
		b.WriteString("[")
		for i := range v.Len() {
			if i > 0 {
				b.WriteString(between)
			}
			line(depth + 1)
			if err := o.write(b, v.Index(i).Interface(), indent, depth+1); err != nil {
				return err
			}
		}
		line(depth)
		b.WriteString("]")
	case reflect.Pointer:
		if d, is := v.Interface().(*exec.Dict); is {
			return o.writeDict(b, d, between, line, indent, depth)
		}
		return o.write(b, v.Elem().Interface(), indent, depth)
	default:
		return errors.New("an object of type " + v.Type().String() + " is no JSON")
	}
	return nil
}

func (o order) writeDict(b *strings.Builder, d *exec.Dict, between string, line func(int), indent, depth int) error {
	b.WriteString("{")
	for i, p := range d.Pairs {
		if i > 0 {
			b.WriteString(between)
		}
		line(depth + 1)
		b.WriteString(quoted(p.Key.String()) + ": ")
		if err := o.write(b, p.Value.Interface(), indent, depth+1); err != nil {
			return err
		}
	}
	if len(d.Pairs) > 0 {
		line(depth)
	}
	b.WriteString("}")
	return nil
}

func quoted(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s)
	out := strings.TrimSuffix(b.String(), "\n")
	return strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(out) // Go escapes these two whatever it is told
}

// pythonFloat writes a number as Python's repr does.
func pythonFloat(x float64) string {
	switch {
	case math.IsNaN(x):
		return "NaN"
	case math.IsInf(x, 0):
		return map[bool]string{true: "Infinity", false: "-Infinity"}[x > 0]
	}
	if a := math.Abs(x); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(x, 'e', -1, 64)
	}
	s := strconv.FormatFloat(x, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

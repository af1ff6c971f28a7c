package jinja

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// str is str(v).
func (r *run) str(v Value) string {
	switch v := v.(type) {
	case string:
		return v
	case Markup:
		return string(v)
	case *Undefined:
		return ""
	}
	return r.repr(v)
}

// repr is repr(v).
func (r *run) repr(v Value) string {
	if s, simple := r.simpleRepr(v); simple {
		return s
	}
	var b buffer
	r.writeRepr(&b, v, 0)
	return r.take(&b)
}

func (r *run) simpleRepr(v Value) (string, bool) {
	switch v := v.(type) {
	// Constants and numbers.
	case None:
		return "None", true
	case bool:
		if v {
			return "True", true
		}
		return "False", true
	case int:
		return strconv.Itoa(v), true
	case *big.Int:
		return r.intText(v), true
	case float64:
		return floatText(v), true
	// Text, in quotes and with escapes: up to twice its size before any long escape.
	case string:
		r.allocTimes(len(v), 2)
		return reprString(v), true
	case Markup:
		r.allocTimes(len(v), 2)
		return "Markup(" + reprString(string(v)) + ")", true
	// Objects without a depth of their own.
	case *Undefined:
		return "Undefined", true
	case *rangeValue:
		if v.step != 1 {
			return fmt.Sprintf("range(%d, %d, %d)", v.start, v.stop, v.step), true
		}
		return fmt.Sprintf("range(%d, %d)", v.start, v.stop), true
	case *loopContext:
		return fmt.Sprintf("<LoopContext %d/%d>", v.index0+1, v.length(r)), true
	case *macroValue:
		if !v.code.hasName {
			return "<Macro anonymous>", true
		}
		return "<Macro " + reprString(v.code.name) + ">", true
	}
	return "", false
}

func (r *run) writeRepr(b *buffer, v Value, depth int) {
	r.step(1)
	r.deep(depth)
	// Containers recurse, so depth has a limit, and write to one buffer.
	if s, simple := r.simpleRepr(v); simple {
		r.write(b, s)
		return
	}
	switch v := v.(type) {
	case *List:
		r.writeItems(b, "[", v.items, "]", depth)
	case *Tuple:
		end := ")"
		if len(v.items) == 1 {
			end = ",)"
		}
		r.writeItems(b, "(", v.items, end, depth)
	case *Dict:
		r.writeDict(b, v, depth)
	case *dictView:
		items := make([]Value, v.dict.Len())
		for i := range items {
			items[i] = v.at(r, i)
		}
		r.writeItems(b, "dict_"+v.kind+"([", items, "])", depth)
	case *namespace:
		r.write(b, "<Namespace ")
		r.writeDict(b, v.attrs, depth)
		r.write(b, ">")
	default:
		unsupported("the text of a %s, which contains its memory address", typeName(v))
	}
}

func (r *run) writeItems(b *buffer, begin string, items []Value, end string, depth int) {
	r.write(b, begin)
	for i, item := range items {
		if i > 0 {
			r.write(b, ", ")
		}
		r.writeRepr(b, item, depth+1)
	}
	r.write(b, end)
}

func (r *run) writeDict(b *buffer, d *Dict, depth int) {
	r.write(b, "{")
	for i, k := range d.keys {
		if i > 0 {
			r.write(b, ", ")
		}
		r.writeRepr(b, k, depth+1)
		r.write(b, ": ")
		r.writeRepr(b, d.values[i], depth+1)
	}
	r.write(b, "}")
}

// reprString is repr of a str.
func reprString(s string) string {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b := []byte{quote}
	for _, c := range s {
		switch {
		case c == rune(quote) || c == '\\':
			b = append(b, '\\', byte(c))
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case unicode.IsPrint(c):
			b = append(b, string(c)...)
		default:
			b = append(b, backslashed(c)...)
		}
	}
	return string(append(b, quote))
}

// ascii is Python's ascii(v).
func (r *run) ascii(v Value) string {
	var b strings.Builder
	for _, c := range r.repr(v) {
		if c < 128 {
			b.WriteRune(c)
		} else {
			b.WriteString(backslashed(c))
		}
	}
	return r.text(b.String())
}

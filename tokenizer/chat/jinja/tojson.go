package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"unicode/utf16"
)

// jsonWriter is json.dumps with transformers' options.
type jsonWriter struct {
	r          *run
	out        buffer
	ascii      bool
	sort       bool
	indented   bool
	indent     string
	between    string
	afterColon string
}

func toJSON(r *run, v Value, args []Value) Value {
	w := &jsonWriter{r: r, between: ", ", afterColon: ": "}
	w.ascii = args[0] != nil && r.truth(args[0])
	if args[1] != nil {
		w.setIndent(args[1])
	}
	if _, none := given(args[2]).(None); !none {
		parts := r.unpack(args[2], 2)
		w.between, w.afterColon = textArg(parts[0]), textArg(parts[1])
	}
	w.sort = args[3] != nil && r.truth(args[3])
	w.write(v, 0)
	return r.take(&w.out)
}

func (w *jsonWriter) setIndent(v Value) {
	if _, none := v.(None); none {
		return
	}
	w.indented, w.between = true, ","
	if s, is := textOf(v); is {
		w.indent = s
		return
	}
	w.indent = w.r.repeat(" ", max(0, index(v, "indent")))
}

func (w *jsonWriter) line(depth int) {
	if w.indented {
		w.r.write(&w.out, "\n")
		for range depth {
			w.r.write(&w.out, w.indent)
		}
	}
}

func (w *jsonWriter) write(v Value, depth int) {
	w.r.step(1)
	w.r.deep(depth)
	switch v := v.(type) {
	case None:
		w.r.write(&w.out, "null")
	case bool:
		w.r.write(&w.out, fmt.Sprint(v))
	case int, *big.Int:
		w.r.write(&w.out, w.r.repr(v))
	case float64:
		w.r.write(&w.out, jsonFloat(v))
	case string:
		w.text(v)
	case Markup:
		w.text(string(v))
	case *List:
		w.list(v.items, depth)
	case *Tuple:
		w.list(v.items, depth)
	case *Dict:
		w.dict(v, depth)
	default:
		typeError("Object of type %s is not JSON serializable", typeName(v))
	}
}

func jsonFloat(x float64) string {
	switch {
	case math.IsNaN(x):
		return "NaN"
	case math.IsInf(x, 1):
		return "Infinity"
	case math.IsInf(x, -1):
		return "-Infinity"
	}
	return floatText(x)
}

func (w *jsonWriter) list(items []Value, depth int) {
	if len(items) == 0 {
		w.r.write(&w.out, "[]")
		return
	}
	w.r.write(&w.out, "[")
	for i, item := range items {
		if i > 0 {
			w.r.write(&w.out, w.between)
		}
		w.line(depth + 1)
		w.write(item, depth+1)
	}
	w.line(depth)
	w.r.write(&w.out, "]")
}

func (w *jsonWriter) dict(d *Dict, depth int) {
	if d.Len() == 0 {
		w.r.write(&w.out, "{}")
		return
	}
	order := make([]Value, d.Len())
	for i := range order {
		order[i] = i
	}
	if w.sort {
		order = w.r.sorted(order, d.keys, false)
	}
	w.r.write(&w.out, "{")
	for n, at := range order {
		i := at.(int)
		if n > 0 {
			w.r.write(&w.out, w.between)
		}
		w.line(depth + 1)
		w.text(w.key(d.keys[i]))
		w.r.write(&w.out, w.afterColon)
		w.write(d.values[i], depth+1)
	}
	w.line(depth)
	w.r.write(&w.out, "}")
}

func (w *jsonWriter) key(k Value) string {
	switch k := k.(type) {
	case string:
		return k
	case Markup:
		return string(k)
	case None:
		return "null"
	case bool:
		return fmt.Sprint(k)
	case float64:
		return jsonFloat(k)
	case int, *big.Int:
		return w.r.repr(k)
	}
	typeError("keys must be str, int, float, bool or None, not %s", typeName(k))
	return ""
}

var jsonEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}

func (w *jsonWriter) text(s string) {
	var b strings.Builder
	w.r.allocTimes(len(s), 2)
	b.WriteByte('"')
	for _, c := range s {
		escape, special := jsonEscapes[c]
		switch {
		case special:
			b.WriteString(escape)
		case c < 0x20 || w.ascii && c > 126 && c < 0x10000 && c != 127:
			fmt.Fprintf(&b, `\u%04x`, c)
		case w.ascii && c >= 0x10000:
			high, low := utf16.EncodeRune(c)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	w.r.write(&w.out, b.String())
}

package main

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"strings"
	"unicode"

	"monotron/csrc/device/activations"
)

// header is ops.h. Its checksum is in the kernel table, so that libraries of other
// descriptions are refused, whatever their sizes.
func (s *source) header() []byte {
	b := &bytes.Buffer{}
	for _, e := range s.enums {
		fmt.Fprintf(b, "enum { %s };\n", strings.Join(constants(e.names), ", "))
	}
	s.gated(b)
	s.structsOf(b)
	s.knownOf(b)
	s.each(b)
	head := fmt.Sprintf("/* %s */\n#ifndef MT_OPS_H\n#define MT_OPS_H\n\n#define MT_OPS_SUM 0x%08xu /* of the rest of this file */\n\n", written, crc32.ChecksumIEEE(b.Bytes()))
	return append(append([]byte(head), b.Bytes()...), "\n#endif\n"...)
}

func (s *source) gated(b *bytes.Buffer) {
	bits := "0"
	for a := range activations.Activations {
		if a.Gated() {
			bits += fmt.Sprintf(" | 1u << %d", a)
		}
	}
	fmt.Fprintf(b, "\n#define MT_GATED (%s) /* activations whose input is twice as wide as their output */\n", strings.TrimPrefix(bits, "0 | "))
}

func (s *source) structsOf(b *bytes.Buffer) {
	fmt.Fprintln(b)
	for _, r := range s.ordered() {
		fmt.Fprintf(b, "typedef struct {")
		last := ""
		for i, f := range r.fields {
			if kind := cType(f.kind, s); kind == last {
				fmt.Fprintf(b, ", %s", cField(f.name, i))
			} else {
				fmt.Fprintf(b, "%s %s %s", end(last), kind, cField(f.name, i))
				last = kind
			}
		}
		fmt.Fprintf(b, "; } %s;\n", s.cName(r.name))
	}
}

// end closes the fields of one type.
func end(kind string) string {
	if kind == "" {
		return ""
	}
	return ";"
}

// ordered has a struct behind those it holds.
func (s *source) ordered() []record {
	var out []record
	done := map[string]bool{}
	var add func(r record)
	add = func(r record) {
		if done[r.name] {
			return
		}
		done[r.name] = true
		for _, f := range r.fields {
			for _, inner := range s.structs {
				if inner.name == f.kind {
					add(inner)
				}
			}
		}
		out = append(out, r)
	}
	for _, r := range s.structs {
		add(r)
	}
	return out
}

func (s *source) knownOf(b *bytes.Buffer) {
	names := append([]string{"DTypes", "Values"}, s.choices()...)
	fmt.Fprintf(b, "\n/* Values of each enumeration that a device knows, as bits: DTypes it can move, Values it computes in. */\ntypedef struct {")
	for _, n := range names {
		fmt.Fprintf(b, " uint32_t %s;", snake(n))
	}
	fmt.Fprintf(b, " } mt_known;\n#define MT_BIT(value) (1u << (value))\n\n/* X(name) of every such enumeration, for tables. */\n#define MT_EACH_ENUMERATION(X)")
	for _, n := range names {
		fmt.Fprintf(b, " X(%s)", snake(n))
	}
	fmt.Fprintln(b)
}

func (s *source) each(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n/* X(number, name) of every op, for tables. */\n#define MT_EACH_OP(X)")
	for _, o := range s.ops {
		fmt.Fprintf(b, " \\\n  X(MT_%s, %s)", strings.ToUpper(o.name), o.name)
	}
	fmt.Fprintf(b, "\n#define MT_NUMBER(number, name) number,\nenum { MT_EACH_OP(MT_NUMBER) MT_OPS };\n#undef MT_NUMBER\n")
}

var cTypes = map[string]string{
	"Tensor": "mt_tensor", "int32": "int32_t", "int64": "int64_t", "uint64": "uint64_t", "float32": "float", "float64": "double",
}

func cType(kind string, s *source) string {
	if t := cTypes[kind]; t != "" {
		return t
	}
	if s.enumerated(kind) {
		return "int32_t"
	}
	return s.cName(kind)
}

// cName is a struct's name in C; an op's goes by the op's own name.
func (s *source) cName(name string) string {
	for _, o := range s.ops {
		if o.goName+"Args" == name {
			return "mt_" + o.name + "_args"
		}
	}
	return "mt_" + snake(name)
}

func cField(name string, i int) string {
	switch name {
	case "_":
		return fmt.Sprintf("pad%d", i)
	case "DO": // do is a word of C's
		return "d_o"
	}
	return snake(name)
}

func constants(names []string) (out []string) {
	for _, n := range names {
		out = append(out, "MT_"+strings.ToUpper(snake(n)))
	}
	return out
}

// snake writes a Go name as C has it: LRMult lr_mult, IDs ids; the D of a gradient
// stays with what it is of: DGamma dgamma.
func snake(name string) string {
	r := []rune(strings.ReplaceAll(name, "IDs", "Ids"))
	var b strings.Builder
	for i, c := range r {
		upper := unicode.IsUpper(c)
		word := i > 0 && upper && !unicode.IsUpper(r[i-1])
		last := i > 1 && upper && unicode.IsUpper(r[i-1]) && i+1 < len(r) && unicode.IsLower(r[i+1])
		q := i == 1 && upper && r[0] != 'D' && i+1 < len(r) && unicode.IsLower(r[i+1])
		if word || last || q {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

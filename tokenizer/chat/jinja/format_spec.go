package jinja

import (
	"math/big"
	"strings"
	"unicode/utf8"
)

// formatSpec is Python's format specification.
type formatSpec struct {
	fill, align    string
	sign           byte
	alternate      bool
	zero           bool // a zero before the width, and no alignment
	width          int
	group          string
	precision      int // -1: not given
	kind           byte
	negativeToZero bool
}

// specReader takes a format specification apart.
type specReader struct{ rest string }

// take takes the next character, if it is one of a set; 0 otherwise.
func (p *specReader) take(set string) byte {
	if p.rest != "" && strings.IndexByte(set, p.rest[0]) >= 0 {
		c := p.rest[0]
		p.rest = p.rest[1:]
		return c
	}
	return 0
}

func (p *specReader) number() (n int, some bool) {
	for c := p.take("0123456789"); c != 0; c = p.take("0123456789") {
		n, some = n*10+int(c-'0'), true
		if n > 1<<40 {
			valueError("Too many decimal digits in format string")
		}
	}
	return n, some
}

// align reads a fill character and an alignment.
func (p *specReader) align() (fill, align string) {
	aligns := func(s string) bool { return s != "" && strings.IndexByte("<>=^", s[0]) >= 0 }
	_, n := utf8.DecodeRuneInString(p.rest)
	if p.rest != "" && aligns(p.rest[n:]) {
		fill, align, p.rest = p.rest[:n], p.rest[n:n+1], p.rest[n+1:]
	} else if aligns(p.rest) {
		align, p.rest = p.rest[:1], p.rest[1:]
	}
	return fill, align
}

func parseSpec(s string) formatSpec {
	p := &specReader{s}
	f := formatSpec{precision: -1, sign: '-'}
	// [[fill]align][sign][z][#][0][width][grouping][.precision][type]
	f.fill, f.align = p.align()
	if c := p.take("+- "); c != 0 {
		f.sign = c
	}
	f.negativeToZero = p.take("z") != 0
	f.alternate = p.take("#") != 0
	if f.fill == "" && p.take("0") != 0 {
		f.fill = "0"
		if f.align == "" {
			f.zero, f.align = true, "="
		}
	}
	f.width, _ = p.number()
	if c := p.take(",_"); c != 0 {
		f.group = string(c)
		if p.take(",_") != 0 {
			valueError("Cannot specify both ',' and '_'.")
		}
	}
	if p.take(".") != 0 {
		some := false
		if f.precision, some = p.number(); !some {
			valueError("Format specifier missing precision")
		}
	}
	if len(p.rest) > 1 {
		valueError("Invalid format specifier")
	}
	if p.rest != "" {
		f.kind = p.rest[0]
	}
	return f
}

// formatted is format(v, spec).
func (r *run) formatted(v Value, spec string) string {
	if spec == "" {
		return r.str(v)
	}
	f := parseSpec(spec)
	if f.negativeToZero {
		unsupported("the option z of a format")
	}
	switch v := v.(type) {
	case string:
		return r.formatText(v, f)
	case float64:
		return r.formatFloat(v, f)
	case int, bool, *big.Int:
		return r.formatInt(v, f)
	}
	if _, safe := v.(Markup); safe {
		unsupported("a format of a Markup")
	}
	typeError("unsupported format string passed to %s.__format__", typeName(v))
	return ""
}

func (r *run) formatText(s string, f formatSpec) string {
	if f.kind != 0 && f.kind != 's' {
		valueError("Unknown format code '%c' for object of type 'str'", f.kind)
	}
	if f.sign != '-' || f.alternate || f.group != "" || f.align == "=" && !f.zero {
		valueError("not allowed in string format specifier")
	}
	if f.align == "=" {
		f.align = "<"
	}
	if f.precision >= 0 {
		s = cut(s, 0, f.precision)
	}
	return r.aligned("", s, f, "<")
}

func (r *run) formatInt(v Value, f formatSpec) string {
	n, _ := bigOf(v)
	// A float's code makes a float of it.
	if strings.IndexByte("eEfFgG%", f.kind) >= 0 && f.kind != 0 {
		x, _ := floatOf(v)
		return r.formatFloat(x, f)
	}
	if f.precision >= 0 {
		valueError("Precision not allowed in integer format specifier")
	}
	// The base, its prefix, and how many digits a group has.
	base, prefix, size := 10, "", 3
	switch f.kind {
	case 0, 'd', 'n':
	case 'b':
		base, prefix, size = 2, "0b", 4
	case 'o':
		base, prefix, size = 8, "0o", 4
	case 'x', 'X':
		base, prefix, size = 16, "0x", 4
	case 'c':
		unsupported("the code c of a format")
	default:
		valueError("Unknown format code '%c' for object of type '%s'", f.kind, typeName(v))
	}
	if f.group == "," && (size == 4 || f.kind == 'n') || f.group == "_" && f.kind == 'n' {
		valueError("Cannot specify '%s' with '%c'.", f.group, f.kind)
	}
	// Digits without a sign, then sign and prefix in front, padded and grouped.
	digits := ""
	if base == 10 {
		digits = strings.TrimPrefix(r.intText(n), "-")
	} else {
		r.alloc(n.BitLen())
		digits = new(big.Int).Abs(n).Text(base)
	}
	if !f.alternate {
		prefix = ""
	}
	if f.kind == 'X' {
		digits, prefix = strings.ToUpper(digits), strings.ToUpper(prefix)
	}
	return r.numberAligned(f.signOf(n.Sign() < 0)+prefix, digits, f, size)
}

func (f *formatSpec) signOf(negative bool) string {
	switch {
	case negative:
		return "-"
	case f.sign == '-':
		return ""
	}
	return string(f.sign)
}

func (r *run) formatFloat(x float64, f formatSpec) string {
	kind, precision, percent := f.kind, f.precision, ""
	if precision < 0 {
		precision = 6
	}
	var negative bool
	var digits string
	switch kind {
	case 'e', 'E', 'f', 'F', 'g', 'G':
		negative, digits = r.floatDigits(x, kind, precision, f.alternate)
	case '%':
		negative, digits = r.floatDigits(x*100, 'f', precision, f.alternate)
		percent = "%"
	case 0:
		if f.alternate {
			unsupported("the option # of a float without a code")
		}
		negative, digits = r.floatDefault(x, f.precision)
	default:
		if kind == 'n' {
			unsupported("the code n of a format")
		}
		valueError("Unknown format code '%c' for object of type 'float'", kind)
	}
	return r.numberAligned(f.signOf(negative), digits+percent, f, 3)
}

// floatDefault is a float with a format that names no code: as repr, or as g with at least one
// digit behind the point.
func (r *run) floatDefault(x float64, precision int) (negative bool, digits string) {
	if precision < 0 {
		text := floatText(x)
		return strings.HasPrefix(text, "-"), strings.TrimPrefix(text, "-")
	}
	precision = max(1, precision)
	negative, digits = r.floatDigits(x, 'g', precision, false)
	if !strings.ContainsAny(digits, ".en") {
		if len(digits) >= precision {
			// As many digits as the precision leave none after the point.
			_, scientific := r.floatDigits(x, 'e', precision-1, false)
			mantissa, exponent, _ := strings.Cut(scientific, "e")
			if strings.Contains(mantissa, ".") {
				mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
			}
			return negative, mantissa + "e" + exponent
		}
		digits += ".0"
	}
	return negative, digits
}

// numberAligned groups digits and pads them; zeros as padding are grouped too.
func (r *run) numberAligned(sign, digits string, f formatSpec, size int) string {
	r.allocTimes(len(digits), 2)
	r.step(len(digits))
	if f.group == "" || f.fill != "0" || f.align != "=" {
		return r.aligned(sign, grouped(digits, f.group, size), f, ">")
	}
	r.alloc(min(f.width, 1<<30))
	text := grouped(digits, f.group, size)
	for zeros := 1; len(sign)+len(text) < f.width; zeros++ {
		text = grouped(strings.Repeat("0", zeros)+digits, f.group, size)
		r.step(len(text))
	}
	return sign + text
}

func (r *run) aligned(sign, text string, f formatSpec, align string) string {
	if f.align != "" {
		align = f.align
	}
	fill := f.fill
	if fill == "" {
		fill = " "
	}
	missing := max(0, f.width-utf8.RuneCountInString(text)-len(sign))
	switch align {
	case "<":
		return sign + text + r.repeat(fill, missing)
	case ">":
		return r.repeat(fill, missing) + sign + text
	case "^":
		return r.repeat(fill, missing/2) + sign + text + r.repeat(fill, missing-missing/2)
	}
	return sign + r.repeat(fill, missing) + text
}

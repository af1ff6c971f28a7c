package jinja

import (
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// formatter is str.format under way (string.Formatter with the sandbox's lookups).
type formatter struct {
	r      *run
	pos    []Value
	named  *Dict
	auto   int  // the next number of fields without a name
	manual bool // fields have had numbers
	dotted bool // numbers with attributes, which versions of Python count differently
}

// formatCall is text.format(...) and text.format_map(...).
func (r *run) formatCall(text, name string, g arguments) Value {
	f := &formatter{r: r, pos: g.pos}
	if name == "format_map" {
		if len(g.named) > 0 || len(g.pos) != 1 {
			typeError("format_map() takes exactly one argument")
		}
		d, is := g.pos[0].(*Dict)
		if !is {
			unsupported("format_map of a %s", typeName(g.pos[0]))
		}
		f.pos, f.named = nil, d
	} else {
		f.named = r.kwargsDict(g.named)
	}
	return f.format(text, 2)
}

// format replaces the fields of text; depth is how many levels may still be inside.
func (f *formatter) format(text string, depth int) string {
	if depth < 0 {
		valueError("Max string recursion exceeded")
	}
	var b buffer
	for text != "" {
		at := strings.IndexAny(text, "{}")
		if at < 0 {
			f.r.write(&b, text)
			break
		}
		f.r.write(&b, text[:at])
		brace := text[at]
		text = text[at+1:]
		if text != "" && text[0] == brace {
			f.r.write(&b, string(brace))
			text = text[1:]
			continue
		}
		if brace == '}' {
			valueError("Single '}' encountered in format string")
		}
		end := fieldEnd(text)
		if end < 0 {
			valueError("expected '}' before end of string")
		}
		f.r.write(&b, f.field(text[:end], depth))
		text = text[end+1:]
	}
	return string(b.b)
}

// fieldEnd is where the brace that closes a field stands, -1 where there is none. Braces in
// brackets count as text.
func fieldEnd(s string) int {
	depth := 1
	bracket := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '[' && depth == 1 && !strings.ContainsAny(s[:i], ":!"):
			bracket = true
		case c == ']':
			bracket = false
		case bracket:
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

func (f *formatter) field(text string, depth int) string {
	name, spec, conversion := text, "", byte(0)
	at := 0
	for bracket := false; at < len(text); at++ {
		c := text[at]
		if c == '{' {
			valueError("unexpected '{' in field name")
		}
		bracket = (bracket || c == '[') && c != ']'
		if !bracket && (c == ':' || c == '!') {
			break
		}
	}
	name = text[:at]
	rest := text[at:]
	if strings.HasPrefix(rest, "!") {
		if len(rest) < 2 {
			valueError("end of string while looking for conversion specifier")
		}
		conversion = rest[1]
		if rest = rest[2:]; rest != "" && rest[0] != ':' {
			valueError("expected ':' after conversion specifier")
		}
	}
	spec = strings.TrimPrefix(rest, ":")
	v := f.lookup(name)
	switch conversion {
	case 0:
	case 's':
		v = f.r.str(v)
	case 'r':
		v = f.r.repr(v)
	case 'a':
		v = f.r.ascii(v)
	default:
		valueError("Unknown conversion specifier %c", conversion)
	}
	return f.r.formatted(v, f.format(spec, depth-1))
}

// lookup is the value of a field's name: "0.a[b]".
func (f *formatter) lookup(name string) Value {
	first := name
	if at := strings.IndexAny(name, ".["); at >= 0 {
		first = name[:at]
	}
	rest := name[len(first):]
	if first == "" && rest != "" {
		unsupported("a format's field that begins with an attribute, which only new versions of Python number")
	}
	v := f.first(first, rest != "")
	for rest != "" {
		if rest[0] == '.' {
			attr := rest[1:]
			if at := strings.IndexAny(attr, ".["); at >= 0 {
				attr = attr[:at]
			}
			if attr == "" {
				valueError("Empty attribute in format string")
			}
			v, rest = f.r.getattr(v, attr), rest[1+len(attr):]
			continue
		}
		end := strings.IndexByte(rest, ']')
		if rest[0] != '[' || end < 0 {
			valueError("Missing ']' in format string")
		}
		if end == 1 {
			valueError("Empty attribute in format string")
		}
		var key Value = rest[1:end]
		if n, err := strconv.Atoi(rest[1:end]); err == nil && n >= 0 && rest[1] != '+' {
			key = n
		}
		v, rest = f.r.getitem(v, key), rest[end+1:]
		if rest != "" && rest[0] != '.' && rest[0] != '[' {
			valueError("Only '.' or '[' may follow ']' in format field specifier")
		}
	}
	return v
}

// first is the value a field's name begins with; dotted: attributes follow.
func (f *formatter) first(name string, dotted bool) Value {
	n, err := strconv.Atoi(name)
	number := err == nil && n >= 0 && name[0] != '+'
	if name == "" {
		if f.dotted {
			unsupported("a format that numbers some fields and others not")
		}
		if f.manual {
			valueError("cannot switch from manual field specification to automatic field numbering")
		}
		n, number = f.auto, true
		f.auto++
	} else if number {
		if f.auto > 0 && dotted {
			unsupported("a format that numbers some fields and others not")
		}
		if f.auto > 0 {
			valueError("cannot switch from automatic field numbering to manual field specification")
		}
		f.manual, f.dotted = f.manual || !dotted, f.dotted || dotted
	}
	if number {
		if n >= len(f.pos) {
			fail("IndexError", "Replacement index %d out of range for positional args tuple", n)
		}
		return f.pos[n]
	}
	v := f.r.find(f.named, name)
	if v == nil {
		fail("KeyError", "%s", reprString(name))
	}
	return v
}

// formatSpec is Python's format specification.
type formatSpec struct {
	fill, align    string
	sign           byte
	alternate      bool
	zero           bool
	width          int
	group          string
	precision      int // -1: not given
	kind           byte
	negativeToZero bool
}

func parseSpec(s string) formatSpec {
	f := formatSpec{precision: -1, sign: '-'}
	first, n := utf8.DecodeRuneInString(s)
	aligns := func(s string) bool { return s != "" && strings.ContainsRune("<>=^", rune(s[0])) }
	if s != "" && aligns(s[n:]) {
		f.fill, f.align, s = string(first), s[n:n+1], s[n+1:]
	} else if aligns(s) {
		f.align, s = s[:1], s[1:]
	}
	take := func(set string) byte {
		if s != "" && strings.IndexByte(set, s[0]) >= 0 {
			c := s[0]
			s = s[1:]
			return c
		}
		return 0
	}
	if c := take("+- "); c != 0 {
		f.sign = c
	}
	f.negativeToZero = take("z") != 0
	f.alternate = take("#") != 0
	if take("0") != 0 {
		f.zero = true
		if f.fill == "" {
			f.fill = "0"
			if f.align == "" {
				f.align = "="
			}
		}
	}
	number := func() (n int, some bool) {
		for c := take("0123456789"); c != 0; c = take("0123456789") {
			n, some = n*10+int(c-'0'), true
			if n > 1<<40 {
				valueError("Too many decimal digits in format string")
			}
		}
		return n, some
	}
	f.width, _ = number()
	if c := take(",_"); c != 0 {
		f.group = string(c)
		if take(",_") != 0 {
			valueError("Cannot specify both ',' and '_'.")
		}
	}
	if take(".") != 0 {
		precision, some := number()
		if !some {
			valueError("Format specifier missing precision")
		}
		f.precision = precision
	}
	if len(s) > 1 {
		valueError("Invalid format specifier")
	}
	if s != "" {
		f.kind = s[0]
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
	if strings.IndexByte("eEfFgG%", f.kind) >= 0 && f.kind != 0 {
		x, _ := floatOf(v)
		return r.formatFloat(x, f)
	}
	if f.precision >= 0 {
		valueError("Precision not allowed in integer format specifier")
	}
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
	negative, digits := x < 0, ""
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
			// As many digits as the precision leave no place for one behind the point.
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

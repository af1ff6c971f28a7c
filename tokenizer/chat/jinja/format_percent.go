package jinja

import (
	"math/big"
	"strings"
	"unicode/utf8"
)

// percentArgs hands out the values of a format with %.
type percentArgs struct {
	list    []Value
	single  Value // what is not a tuple
	used    int
	mapping *Dict
	fromMap bool
}

func (p *percentArgs) next() Value {
	if p.used >= len(p.list) {
		typeError("not enough arguments for format string")
	}
	p.used++
	return p.list[p.used-1]
}

// conversion is one % of a format.
type conversion struct {
	minus, plus, space, alternate, zero bool
	width, precision                    int // precision -1: not given
	kind                                byte
}

// percent is format % value; safe: of a Markup, which escapes texts.
func (r *run) percent(format string, value Value, safe bool) string {
	args := &percentArgs{list: []Value{value}, single: value}
	loose := false // a value that Python can index may be left over
	switch v := value.(type) {
	case *Tuple:
		args.list, args.single = v.items, nil
	case *Dict:
		args.mapping, loose = v, true
	case *List, *Undefined, *rangeValue, *loopContext:
		loose = true
	}
	var b buffer
	for i := 0; i < len(format); {
		at := strings.IndexByte(format[i:], '%')
		if at < 0 {
			r.write(&b, format[i:])
			break
		}
		r.write(&b, format[i:i+at])
		i = r.conversion(&b, format, i+at+1, args, safe)
	}
	if args.used < len(args.list) && !loose && !args.fromMap {
		typeError("not all arguments converted during string formatting")
	}
	return r.take(&b)
}

// percentReader reads one conversion of a format.
type percentReader struct {
	format string
	i      int
	args   *percentArgs
}

func (p *percentReader) at() byte {
	if p.i >= len(p.format) {
		valueError("incomplete format")
	}
	return p.format[p.i]
}

// number reads a width or precision; a star takes it from the arguments.
func (p *percentReader) number() int {
	if p.at() == '*' {
		p.i++
		n := p.args.next()
		if !isInt(n) {
			typeError("* wants int")
		}
		return index(n, "*")
	}
	n := 0
	for ; p.at() >= '0' && p.at() <= '9'; p.i++ {
		n = min(n*10+int(p.at()-'0'), 1<<40)
	}
	return n
}

// read reads what stands before the letter, and that.
func (p *percentReader) read() (c conversion) {
	// Flags, width, precision, a length that means nothing, the letter.
	for ; strings.IndexByte("-+ #0", p.at()) >= 0; p.i++ {
		switch p.at() {
		case '-':
			c.minus = true
		case '+':
			c.plus = true
		case ' ':
			c.space = true
		case '#':
			c.alternate = true
		case '0':
			c.zero = true
		}
	}
	if c.width = p.number(); c.width < 0 {
		c.minus, c.width = true, -c.width
	}
	c.precision = -1
	if p.at() == '.' {
		p.i++
		c.precision = max(0, p.number())
	}
	if h := p.at(); h == 'h' || h == 'l' || h == 'L' {
		p.i++
	}
	c.kind = p.at()
	p.i++
	return c
}

// conversion writes the one that begins at i, behind its %, and returns what follows it.
func (r *run) conversion(b *buffer, format string, i int, args *percentArgs, safe bool) int {
	p := &percentReader{format, i, args}
	if p.at() == '%' {
		r.write(b, "%")
		return i + 1
	}
	var value Value
	if p.at() == '(' {
		value, p.i = r.byName(format, i+1, args)
	}
	c := p.read()
	if value == nil {
		value = args.next()
	}
	if strings.IndexByte("diouxXeEfFgGcrsa", c.kind) < 0 {
		valueError("unsupported format character '%c' at index %d", c.kind, p.i-1)
	}
	r.write(b, r.converted(&c, value, safe))
	return p.i
}

// byName is the value of %(name) and the position behind it.
func (r *run) byName(format string, i int, args *percentArgs) (Value, int) {
	if args.mapping == nil {
		if u, is := args.single.(*Undefined); is {
			u.use()
		}
		typeError("format requires a mapping")
	}
	depth, from := 1, i
	for ; depth > 0; i++ {
		if i >= len(format) {
			valueError("incomplete format key")
		}
		switch format[i] {
		case '(':
			depth++
		case ')':
			depth--
		}
	}
	key := format[from : i-1]
	v := r.find(args.mapping, key)
	if v == nil {
		fail("KeyError", "%s", reprString(key))
	}
	args.fromMap = true
	return v, i
}

func (r *run) converted(c *conversion, v Value, safe bool) string {
	switch c.kind {
	case 's', 'r', 'a':
		// Text: %s, %r, %a, cut to the precision; in a Markup's format all but Markup is escaped.
		text := ""
		switch {
		case c.kind == 'r':
			text = r.repr(v)
		case c.kind == 'a':
			text = r.ascii(v)
		default:
			text = r.str(v)
		}
		if _, already := v.(Markup); safe && !(already && c.kind == 's') {
			text = r.escape(text)
		}
		if c.precision >= 0 {
			text = cut(text, 0, c.precision)
		}
		return r.padded(c, "", text, false)
	// Characters and integers.
	case 'c':
		return r.padded(c, "", character(v), false)
	case 'd', 'i', 'u', 'o', 'x', 'X':
		return r.integer(c, v)
	}
	// Floats: e, f, g and their capitals.
	f, is := floatOf(v)
	if !is {
		if u, is := v.(*Undefined); is {
			u.use()
		}
		typeError("must be real number, not %s", typeName(v))
	}
	precision := c.precision
	if precision < 0 {
		precision = 6
	}
	sign, digits := r.floatDigits(f, c.kind, precision, c.alternate)
	return r.padded(c, c.sign(sign), digits, true)
}

func (c *conversion) sign(negative bool) string {
	switch {
	case negative:
		return "-"
	case c.plus:
		return "+"
	case c.space:
		return " "
	}
	return ""
}

func character(v Value) string {
	if s, is := textOf(v); is {
		if utf8.RuneCountInString(s) != 1 {
			typeError("%%c requires int or char")
		}
		return s
	}
	if !isInt(v) {
		typeError("%%c requires int or char")
	}
	n := index(v, "%c")
	if n < 0 || n > utf8.MaxRune {
		fail("OverflowError", "%%c arg not in range(0x110000)")
	}
	if n >= 0xd800 && n < 0xe000 {
		unsupported("a surrogate as a character")
	}
	return string(rune(n))
}

func (r *run) integer(c *conversion, v Value) string {
	// A float is cut for decimal conversions only.
	n, is := bigOf(v)
	if f, float := v.(float64); float && (c.kind == 'd' || c.kind == 'i' || c.kind == 'u') {
		n, _ = bigOf(truncated(f))
		is = true
	}
	if !is {
		if u, undefined := v.(*Undefined); undefined {
			u.use()
		}
		typeError("%%%c format: a real number is required, not %s", c.kind, typeName(v))
	}
	// Prefix and digits, with zeros up to the precision.
	prefix, digits := "", ""
	switch c.kind {
	case 'o':
		prefix, digits = "0o", new(big.Int).Abs(n).Text(8)
	case 'x', 'X':
		prefix, digits = "0x", new(big.Int).Abs(n).Text(16)
	default:
		digits = strings.TrimPrefix(r.intText(n), "-")
	}
	if !c.alternate {
		prefix = ""
	}
	if missing := c.precision - len(digits); missing > 0 {
		digits = r.repeat("0", missing) + digits
	}
	if c.kind == 'X' {
		prefix, digits = strings.ToUpper(prefix), strings.ToUpper(digits)
	}
	return r.padded(c, c.sign(n.Sign() < 0)+prefix, digits, true)
}

// padded is text in its width; zeros go between the sign and a number.
func (r *run) padded(c *conversion, sign, text string, number bool) string {
	missing := max(0, c.width-len(sign)-utf8.RuneCountInString(text))
	switch {
	case c.minus:
		return sign + text + r.repeat(" ", missing)
	case c.zero && number:
		return sign + r.repeat("0", missing) + text
	}
	return r.repeat(" ", missing) + sign + text
}

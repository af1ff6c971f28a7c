package jinja

import (
	"strconv"
	"strings"
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
		// Doubled braces are one; otherwise a field follows.
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
	return f.r.take(&b)
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
	// name[!conversion][:spec]; a bracket may hold ! and :.
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
	// The value, converted, then formatted by a spec that may have fields itself.
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
		unsupported("a format with a field that has an attribute but no number, which only newer versions of Python accept")
	}
	v := f.first(first, rest != "")
	// Attributes and items from left to right; an item's digits are a number.
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
	// Numbers may be left out of all fields, or of none.
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

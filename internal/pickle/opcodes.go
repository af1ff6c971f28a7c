package pickle

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// opcodes is every instruction of protocols 0 to 5 but those that reach outside
// the pickle (extension registry, out-of-band buffers).
var opcodes [256]func(*machine) error

func init() {
	for code, act := range map[byte]func(*machine) error{
		// framing
		0x80: func(m *machine) error {
			b, err := m.take(1)
			if err == nil && b[0] > 5 {
				return m.errorf("the pickle has protocol %d; protocols 0 to 5 are supported", b[0])
			}
			return err
		},
		0x95: func(m *machine) error { _, err := m.take(8); return err },

		// constants
		'N':  func(m *machine) error { return m.push(nil) },
		0x88: func(m *machine) error { return m.push(true) },
		0x89: func(m *machine) error { return m.push(false) },
		'I':  withLine((*machine).integer),
		'L':  withLine((*machine).integer),
		'J':  func(m *machine) error { n, err := m.number(4); return m.must(int64(int32(uint32(n))), err) },
		'K':  func(m *machine) error { n, err := m.number(1); return m.must(int64(n), err) },
		'M':  func(m *machine) error { n, err := m.number(2); return m.must(int64(n), err) },
		0x8a: func(m *machine) error { b, err := m.sized(1); return m.long(b, err) },
		0x8b: func(m *machine) error { b, err := m.sized(4); return m.long(b, err) },
		'F': withLine(func(m *machine, s string) error {
			f, err := strconv.ParseFloat(s, 64)
			if err != nil {
				return m.errorf("%.40q is not a number", s)
			}
			return m.push(f)
		}),
		'G': func(m *machine) error { b, err := m.take(8); return m.float(b, err) },

		// strings
		'S':  withLine((*machine).quoted),
		'T':  func(m *machine) error { b, err := m.sized(4); return m.must(string(b), err) },
		'U':  func(m *machine) error { b, err := m.sized(1); return m.must(string(b), err) },
		'V':  withLine((*machine).escaped),
		'X':  func(m *machine) error { b, err := m.sized(4); return m.text(b, err) },
		0x8c: func(m *machine) error { b, err := m.sized(1); return m.text(b, err) },
		0x8d: func(m *machine) error { b, err := m.sized(8); return m.text(b, err) },
		'B':  func(m *machine) error { b, err := m.sized(4); return m.must(Bytes(b), err) },
		'C':  func(m *machine) error { b, err := m.sized(1); return m.must(Bytes(b), err) },
		0x8e: func(m *machine) error { b, err := m.sized(8); return m.must(Bytes(b), err) },
		0x96: func(m *machine) error { b, err := m.sized(8); return m.must(Bytes(b), err) },

		// containers
		']':  func(m *machine) error { return m.made(&List{depth: 1}, 1) },
		')':  func(m *machine) error { return m.made(&Tuple{depth: 1}, 1) },
		'}':  func(m *machine) error { return m.made(&Dict{depth: 1}, 1) },
		0x8f: func(m *machine) error { return m.made(&Set{depth: 1}, 1) },
		'(':  func(m *machine) error { m.marks = append(m.marks, len(m.stack)); return nil },
		'l': withMark(func(m *machine, items []Value) error {
			d := depthAbove(items...)
			return m.made(&List{items, d}, d)
		}),
		't':  withMark((*machine).tuple),
		0x85: func(m *machine) error { items, err := m.popN(1); return m.tupleOf(items, err) },
		0x86: func(m *machine) error { items, err := m.popN(2); return m.tupleOf(items, err) },
		0x87: func(m *machine) error { items, err := m.popN(3); return m.tupleOf(items, err) },
		'd': withMark(func(m *machine, items []Value) error {
			d := &Dict{depth: 1}
			if err := m.setItems(d, items); err != nil {
				return err
			}
			return m.made(d, d.depth)
		}),
		0x91: withMark(func(m *machine, items []Value) error {
			d := depthAbove(items...)
			return m.made(&Set{items, true, d}, d)
		}),
		'a': func(m *machine) error { items, err := m.popN(1); return m.appendTo(items, err) },
		'e': withMark(func(m *machine, items []Value) error { return m.appendTo(items, nil) }),
		0x90: withMark(func(m *machine, items []Value) error {
			v, err := m.top()
			if err != nil {
				return err
			}
			s, ok := v.(*Set)
			if !ok {
				return m.errorf("the opcode ADDITEMS is applied to a value of type %s; it must be a set", TypeName(v))
			}
			s.Items = append(s.Items, items...)
			return m.grow(&s.depth, items...)
		}),
		's': func(m *machine) error { items, err := m.popN(2); return m.setTop(items, err) },
		'u': withMark(func(m *machine, items []Value) error { return m.setTop(items, nil) }),

		// stack and memo
		'0': func(m *machine) error {
			if n := len(m.marks); n > 0 && len(m.stack) == m.marks[n-1] {
				m.marks = m.marks[:n-1] // POP takes a mark away too
				return nil
			}
			_, err := m.pop()
			return err
		},
		'1':  withMark(func(*machine, []Value) error { return nil }),
		'2':  func(m *machine) error { v, err := m.top(); return m.must(v, err) },
		'g':  withLine(func(m *machine, s string) error { return m.byLine(s, m.get) }),
		'p':  withLine(func(m *machine, s string) error { return m.byLine(s, m.put) }),
		'h':  func(m *machine) error { return m.byNumber(1, m.get) },
		'j':  func(m *machine) error { return m.byNumber(4, m.get) },
		'q':  func(m *machine) error { return m.byNumber(1, m.put) },
		'r':  func(m *machine) error { return m.byNumber(4, m.put) },
		0x94: func(m *machine) error { return m.put(uint64(len(m.memo))) },

		// classes and objects
		'c': func(m *machine) error {
			module, err := m.line()
			if err != nil {
				return err
			}
			name, err := m.line()
			if err != nil {
				return err
			}
			return m.global(module, name)
		},
		0x93: func(m *machine) error {
			items, err := m.popN(2)
			if err != nil {
				return err
			}
			module, ok := items[0].(string)
			name, also := items[1].(string)
			if !ok || !also {
				return m.errorf("the name of a class consists of values of types %s and %s instead of two strings", TypeName(items[0]), TypeName(items[1]))
			}
			return m.global(module, name)
		},
		'R':  func(m *machine) error { items, err := m.popN(2); return m.reduce(items, err) },
		0x81: func(m *machine) error { items, err := m.popN(2); return m.instance(items, err) },
		0x92: func(m *machine) error {
			items, err := m.popN(3)
			if err != nil {
				return err
			}
			if kw, ok := items[2].(*Dict); !ok || len(kw.Pairs) > 0 {
				return m.errorf("a class is called with keyword arguments, which is not supported")
			}
			return m.instance(items[:2], nil)
		},
		'i': func(m *machine) error {
			module, err := m.line()
			if err != nil {
				return err
			}
			name, err := m.line()
			if err != nil {
				return err
			}
			args, err := m.popMark()
			if err != nil {
				return err
			}
			if err := m.global(module, name); err != nil {
				return err
			}
			class, err := m.pop()
			return m.reduce([]Value{class, &Tuple{Items: args, depth: depthAbove(args...)}}, err)
		},
		'o': withMark(func(m *machine, items []Value) error {
			if len(items) == 0 {
				return m.errorf("the opcode needs a value, but the stack is empty")
			}
			return m.reduce([]Value{items[0], &Tuple{Items: items[1:], depth: depthAbove(items[1:]...)}}, nil)
		}),
		'b': func(m *machine) error { items, err := m.popN(1); return m.build(items, err) },
		'P': withLine(func(m *machine, s string) error { return m.persist(s) }),
		'Q': func(m *machine) error {
			v, err := m.pop()
			if err != nil {
				return err
			}
			return m.persist(v)
		},
	} {
		opcodes[code] = act
	}
}

func withLine(act func(*machine, string) error) func(*machine) error {
	return func(m *machine) error {
		s, err := m.line()
		if err != nil {
			return err
		}
		return act(m, s)
	}
}

func withMark(act func(*machine, []Value) error) func(*machine) error {
	return func(m *machine) error {
		items, err := m.popMark()
		if err != nil {
			return err
		}
		return act(m, items)
	}
}

func (m *machine) must(v Value, err error) error {
	if err != nil {
		return err
	}
	return m.push(v)
}

func (m *machine) byLine(s string, do func(uint64) error) error {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return m.errorf("the memo key %.40q is not a valid number", s)
	}
	return do(n)
}

func (m *machine) byNumber(width uint64, do func(uint64) error) error {
	n, err := m.number(width)
	if err != nil {
		return err
	}
	return do(n)
}

func (m *machine) tuple(items []Value) error {
	d := depthAbove(items...)
	return m.made(&Tuple{items, d}, d)
}

func (m *machine) tupleOf(items []Value, err error) error {
	if err != nil {
		return err
	}
	return m.tuple(items)
}

func (m *machine) appendTo(items []Value, err error) error {
	if err != nil {
		return err
	}
	v, err := m.top()
	if err != nil {
		return err
	}
	l, ok := v.(*List)
	if !ok {
		return m.errorf("the opcode APPEND is applied to a value of type %s; it must be a list", TypeName(v))
	}
	l.Items = append(l.Items, items...)
	return m.grow(&l.depth, items...)
}

func (m *machine) setTop(items []Value, err error) error {
	if err != nil {
		return err
	}
	v, err := m.top()
	if err != nil {
		return err
	}
	d, ok := v.(*Dict)
	if !ok {
		return m.errorf("the opcode SETITEM is applied to a value of type %s; it must be a dict", TypeName(v))
	}
	return m.setItems(d, items)
}

func (m *machine) setItems(d *Dict, items []Value) error {
	if len(items)%2 != 0 {
		return m.errorf("a key has no value")
	}
	for i := 0; i < len(items); i += 2 {
		d.Pairs = append(d.Pairs, Pair{items[i], items[i+1]})
	}
	return m.grow(&d.depth, items...)
}

// quoted is protocol 0's repr of a byte string.
func (m *machine) quoted(s string) error {
	if len(s) < 2 || s[0] != s[len(s)-1] || s[0] != '\'' && s[0] != '"' {
		return m.errorf("a string has no quotes")
	}
	body := s[1 : len(s)-1]
	if s[0] == '\'' {
		body = strings.ReplaceAll(strings.ReplaceAll(body, `\'`, `'`), `"`, `\"`)
	}
	text, err := strconv.Unquote(`"` + body + `"`)
	if err != nil {
		return m.errorf("a string has an unknown escape")
	}
	return m.push(text)
}

// text pushes a string, whose bytes must be UTF-8; lone surrogates may be in it, as
// Python writes them.
func (m *machine) text(b []byte, err error) error {
	for rest := b; err == nil && len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		if r == utf8.RuneError && n == 1 {
			if len(rest) < 3 || rest[0] != 0xed || rest[1]&0xe0 != 0xa0 || rest[2]&0xc0 != 0x80 {
				return m.errorf("a string is not UTF-8")
			}
			n = 3
		}
		rest = rest[n:]
	}
	return m.must(string(b), err)
}

// escaped is protocol 0's raw-unicode-escape.
func (m *machine) escaped(s string) error {
	if !strings.Contains(s, `\`) {
		return m.push(s)
	}
	var out strings.Builder
	// \uXXXX or \UXXXXXXXX; every other byte is itself.
	for len(s) > 0 {
		n := 0
		switch {
		case strings.HasPrefix(s, `\u`):
			n = 6
		case strings.HasPrefix(s, `\U`):
			n = 10
		}
		if n == 0 {
			out.WriteByte(s[0])
			s = s[1:]
			continue
		}
		if len(s) < n {
			return m.errorf("a string ends inside an escape")
		}
		r, err := strconv.ParseUint(s[2:n], 16, 32)
		if err != nil {
			return m.errorf("a string has an unknown escape")
		}
		out.WriteRune(rune(r))
		s = s[n:]
	}
	return m.push(out.String())
}

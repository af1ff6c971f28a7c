package jsonl

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"monotron/internal/exitcode"
	"monotron/tokenizer"
)

// Parser picks the values of some keys out of a line's JSON object. It checks
// the complete line, but builds only what is asked for.
type Parser struct {
	Flag   string // names the keys; for messages
	keys   []string
	values []value
	line   []byte
	at     int
	buf    []byte // the strings of this line that had escapes
	inC    bool   // strings are copied by kernel.c
}

// value is what a key holds.
type value struct {
	kind  kind
	texts []string
}

type kind uint8

const (
	missing kind = iota
	text         // a string
	texts        // a list of strings
	null
	otherKind
)

// NewParser returns a parser of the given keys.
func NewParser(keys ...string) *Parser {
	return &Parser{Flag: "json-keys", keys: keys, values: make([]value, len(keys)), inC: kernelUsable}
}

// Use has strings with escapes made in buf, as far as they fit.
func (p *Parser) Use(buf []byte) { p.buf = buf[:0] }

// instead is what a line that is not an object may be, and what to do then.
func (p *Parser) instead() string {
	switch c := p.line[p.at]; {
	case c == '[':
		return "; use jq -c '.[]' to convert a file with one array to lines"
	case slices.Contains(p.line, 0):
		return "; the line contains zero bytes, like UTF-16; convert the file with iconv -t UTF-8"
	case c != '"':
		return "; use --input-format text for plain text"
	}
	return ""
}

// maxDepth of nested values; Python's own limit is near 1000.
const maxDepth = 1000

// Parse reads one line. The error says what is wrong and at which byte of the line.
func (p *Parser) Parse(line []byte) error {
	p.line, p.at, p.buf = line, 0, p.buf[:0]
	for i := range p.values {
		p.values[i] = value{texts: p.values[i].texts[:0]}
	}
	// The first byte that is not UTF-8 is found by going through the line again.
	if !utf8.Valid(line) {
		for p.at < len(line) {
			r, n := utf8.DecodeRune(line[p.at:])
			if r == utf8.RuneError && n == 1 {
				return p.errorf("byte 0x%02x is not UTF-8; %s", line[p.at], tokenizer.Latin1)
			}
			p.at += n
		}
	}
	// One object, and nothing but white space around it.
	p.space()
	if p.at == len(line) {
		return exitcode.Errorf(exitcode.BadData, "the line is empty")
	}
	if line[p.at] != '{' {
		return p.errorf("expected a JSON object%s", p.instead())
	}
	if err := p.object(1, true); err != nil {
		return err
	}
	if p.space(); p.at < len(line) {
		return p.errorf("the line has text after the JSON object")
	}
	return nil
}

// Strings gives the value of key number k: one string, or those of a list. They
// lie in the line and in the parser's memory: they are good until the next Parse,
// and as long as the line stays as it is.
func (p *Parser) Strings(k int) ([]string, error) {
	switch v := p.values[k]; v.kind {
	case text, texts:
		return v.texts, nil
	case missing:
		return nil, exitcode.Errorf(exitcode.BadData, "the key %q is missing; %s", p.keys[k], p.choose())
	case null:
		return nil, exitcode.Errorf(exitcode.BadData, "the value of %q must be a string, not null", p.keys[k])
	}
	return nil, exitcode.Errorf(exitcode.BadData, "the value of %q must be a string or a list of strings", p.keys[k])
}

// mostKeys of a line are named.
const mostKeys = 10

// choose says which keys the line has, for one that lacks a wanted key.
func (p *Parser) choose() string {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(p.line, &object); err != nil || len(object) == 0 { // it may have numbers that only Python reads
		return fmt.Sprintf("--%s names the keys to read", p.Flag)
	}
	var list []string
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if len(list) == mostKeys {
			list = append(list, fmt.Sprintf("%d more", len(object)-mostKeys))
			break
		}
		list = append(list, fmt.Sprintf("%.40q", key))
	}
	return fmt.Sprintf("--%s names the keys to read, and the line has the keys %s", p.Flag, strings.Join(list, ", "))
}

// String gives the value of key number k, which must be one string.
func (p *Parser) String(k int) (string, error) {
	list, err := p.Strings(k)
	if err == nil && p.values[k].kind != text {
		err = exitcode.Errorf(exitcode.BadData, "the value of %q must be a string, not a list", p.keys[k])
	}
	if err != nil {
		return "", err
	}
	return list[0], nil
}

func (p *Parser) errorf(format string, args ...any) error {
	return exitcode.Errorf(exitcode.BadData, "byte %d of the line: "+format, append([]any{p.at}, args...)...)
}

func (p *Parser) space() {
	for p.at < len(p.line) {
		switch p.line[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// next is the byte at p.at, 0 at the end.
func (p *Parser) next() byte {
	if p.at < len(p.line) {
		return p.line[p.at]
	}
	return 0
}

func (p *Parser) object(depth int, top bool) error {
	p.at++ // {
	if p.space(); p.next() == '}' {
		p.at++
		return nil
	}
	for {
		if p.next() != '"' {
			return p.errorf("expected a key in double quotes")
		}
		// A key. Of the top object only, keys that are asked for have a number.
		from := p.at
		end, escaped, err := p.skipString()
		if err != nil {
			return err
		}
		key := -1
		if top {
			if key, err = p.key(from, end, escaped); err != nil {
				return err
			}
		}
		// Its value, kept or skipped.
		if p.space(); p.next() != ':' {
			return p.errorf("expected a colon")
		}
		p.at++
		p.space()
		if key >= 0 {
			err = p.wanted(&p.values[key], depth)
		} else {
			err = p.skip(depth)
		}
		if err != nil {
			return err
		}
		p.space()
		// The next pair or the end.
		switch p.next() {
		case '}':
			p.at++
			return nil
		case ',':
			p.at++
			p.space()
		default:
			return p.errorf("expected a comma or }")
		}
	}
}

// key is the number of the key spelt at line[from:end], quotes included, or -1.
func (p *Parser) key(from, end int, escaped bool) (int, error) {
	raw := p.line[from+1 : end-1]
	if escaped {
		start := len(p.buf)
		if !p.unescape(raw) {
			return -1, nil // a lone surrogate: no key of ours
		}
		raw = p.buf[start:]
	}
	for i, k := range p.keys {
		if k == string(raw) {
			return i, nil
		}
	}
	return -1, nil
}

// wanted reads the value of a key that is asked for.
func (p *Parser) wanted(v *value, depth int) error {
	v.texts = v.texts[:0]
	switch p.next() {
	case '"':
		v.kind = text
		return p.keep(v)
	case '[':
		return p.list(v, depth)
	case 'n':
		v.kind = null
	default:
		v.kind = otherKind
	}
	return p.skip(depth)
}

func (p *Parser) list(v *value, depth int) error {
	v.kind = texts
	return p.array(depth, func() error {
		if p.next() == '"' {
			return p.keep(v)
		}
		v.kind = otherKind
		return p.skip(depth + 1)
	})
}

// keep reads the string at p.at into v: where it lies, or, with escapes, piece by
// piece into p.buf.
func (p *Parser) keep(v *value) error {
	from := p.at
	i, start, escaped := from+1, len(p.buf), false
	if p.inC && len(p.line)-i >= kernelFrom {
		if p.copied(&i) {
			v.texts = append(v.texts, view(p.buf[start:]))
			p.at = i + 1
			return nil
		}
		p.buf, i = p.buf[:start], from+1 // something is wrong: said below
	}
	for piece := i; ; {
		i += plain(p.line[i:])
		if i == len(p.line) || p.line[i] < ' ' {
			_, _, err := p.skipString() // says what is wrong
			return err
		}
		if p.line[i] == '"' && !escaped {
			v.texts = append(v.texts, view(p.line[from+1:i]))
			break
		}
		p.buf = append(p.buf, p.line[piece:i]...)
		if p.line[i] == '"' {
			v.texts = append(v.texts, view(p.buf[start:]))
			break
		}
		n := escapeLen(p.line[i:])
		if n == 2 {
			p.buf = append(p.buf, meaning[p.line[i+1]])
		} else if n == 0 {
			_, _, err := p.skipString()
			return err
		} else if n, p.buf = unicodeEscape(p.buf, p.line[i:]); n == 0 {
			return p.errorf("the string contains %s", surrogate)
		}
		i += n
		piece, escaped = i, true
	}
	p.at = i + 1
	return nil
}

// kernelFrom is how many bytes must follow for a call into C to pay.
const kernelFrom = 64

// copied adds the string that begins at line[*i] to p.buf, in C; false where the
// string is wrong. Afterwards *i is at its closing quote.
func (p *Parser) copied(i *int) bool {
	start, rest := len(p.buf), p.line[*i:]
	p.buf = slices.Grow(p.buf, len(rest)+32)
	read, made := copyText(p.buf[start:cap(p.buf)], rest)
	p.buf = p.buf[:start+made]
	*i += read
	return read < len(rest) && rest[read] == '"'
}

// view is b as a string, while b stays as it is.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// unicodeEscape adds the character of the \uXXXX, or of the two, at the start of
// s; n is their length, 0 for a lone surrogate.
func unicodeEscape(dst, s []byte) (n int, out []byte) {
	r, _ := hex4(s)
	if n = 6; utf16.IsSurrogate(r) {
		low, ok := hex4(s[6:])
		if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
			return 0, dst
		}
		n = 12
	}
	return n, utf8.AppendRune(dst, r)
}

// plain is how many bytes at the start of s are neither a quote, nor a backslash,
// nor a control character: eight at a time, by the carry out of each byte.
func plain(s []byte) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; n+8 <= len(s); n += 8 {
		w := binary.LittleEndian.Uint64(s[n:])
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		special := (quote-ones) & ^quote | (slash-ones) & ^slash | (w-ones*' ') & ^w
		if special &= tops; special != 0 {
			return n + bits.TrailingZeros64(special)/8 // the lowest hit is a true one
		}
	}
	for ; n < len(s) && s[n] != '"' && s[n] != '\\' && s[n] >= ' '; n++ {
	}
	return n
}

// skipString goes over the string at p.at; end is the position after it.
func (p *Parser) skipString() (end int, escaped bool, err error) {
	from := p.at
	for i := from + 1; ; i++ {
		if i += plain(p.line[i:]); i == len(p.line) {
			break
		}
		switch c := p.line[i]; {
		case c == '"':
			p.at = i + 1
			return p.at, escaped, nil
		case c == '\\':
			escaped = true
			n := escapeLen(p.line[i:])
			if n == 0 {
				p.at = i
				return 0, false, p.errorf("a string contains an invalid escape")
			}
			i += n - 1
		case c < ' ':
			p.at = i
			return 0, false, p.errorf("a string contains the control character 0x%02x, which must be escaped", c)
		}
	}
	return 0, false, p.errorf("the string that begins here is not terminated")
}

// meaning is what an escape of one letter stands for.
var meaning = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escapeLen is the length of the escape at the start of s, 0 for a wrong one.
func escapeLen(s []byte) int {
	if len(s) < 2 {
		return 0
	}
	if s[1] != 'u' {
		if meaning[s[1]] == 0 {
			return 0
		}
		return 2
	}
	if _, ok := hex4(s); !ok {
		return 0
	}
	return 6
}

// hex4 reads the digits of \uXXXX.
func hex4(s []byte) (r rune, ok bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	for _, c := range s[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape adds the text of a checked string to p.buf; false for a lone surrogate.
func (p *Parser) unescape(s []byte) bool {
	for i := 0; i < len(s); {
		n := 1
		switch {
		case s[i] != '\\':
			p.buf = append(p.buf, s[i])
		case s[i+1] != 'u':
			p.buf = append(p.buf, meaning[s[i+1]])
			n = 2
		default:
			if n, p.buf = unicodeEscape(p.buf, s[i:]); n == 0 {
				return false
			}
		}
		i += n
	}
	return true
}

func (p *Parser) array(depth int, item func() error) error {
	p.at++ // [
	if p.space(); p.next() == ']' {
		p.at++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		p.space()
		switch p.next() {
		case ']':
			p.at++
			return nil
		case ',':
			p.at++
			p.space()
		default:
			return p.errorf("expected a comma or ]")
		}
	}
}

// words are the values without quotes that are not numbers; the last three are
// Python's own.
var words = [][]byte{[]byte("true"), []byte("false"), []byte("null"), []byte("NaN"), []byte("Infinity"), []byte("-Infinity")}

// skip goes over any value.
func (p *Parser) skip(depth int) error {
	if depth > maxDepth {
		return p.errorf("values are nested more than %d levels deep", maxDepth)
	}
	switch p.next() {
	case '{':
		return p.object(depth+1, false)
	case '[':
		return p.array(depth, func() error { return p.skip(depth + 1) })
	case '"':
		_, _, err := p.skipString()
		return err
	}
	for _, word := range words {
		if bytes.HasPrefix(p.line[p.at:], word) {
			p.at += len(word)
			return nil
		}
	}
	return p.number()
}

func (p *Parser) number() error {
	start := p.at
	if p.next() == '-' {
		p.at++
	}
	if p.next() == '0' {
		p.at++
	} else if !p.digits() {
		p.at = start
		return p.errorf("expected a JSON value")
	}
	for _, part := range []string{".", "eE"} {
		before := p.at
		if c := p.next(); c == 0 || strings.IndexByte(part, c) < 0 {
			continue
		}
		p.at++
		if c := p.next(); part != "." && (c == '+' || c == '-') {
			p.at++
		}
		if !p.digits() {
			p.at = before // as Python: the number ends here, and what follows is wrong
			return nil
		}
	}
	return nil
}

func (p *Parser) digits() bool {
	start := p.at
	for c := p.next(); c >= '0' && c <= '9'; c = p.next() {
		p.at++
	}
	return p.at > start
}

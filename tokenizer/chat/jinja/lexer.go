package jinja

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// token is a piece of a template. kind is Jinja's name of it: data, block_begin, block_end,
// variable_begin, variable_end, name, string, integer, float, eof, or an operator's name.
type token struct {
	kind  string
	text  string // of data, names, strings and operators
	value Value  // of numbers
	line  int
}

// mostSource bounds a template's text.
const mostSource = 256 << 10

var operatorNames = map[string]string{
	"+": "add", "-": "sub", "/": "div", "//": "floordiv", "*": "mul", "%": "mod", "**": "pow", "~": "tilde",
	"[": "lbracket", "]": "rbracket", "(": "lparen", ")": "rparen", "{": "lbrace", "}": "rbrace",
	"==": "eq", "!=": "ne", ">": "gt", ">=": "gteq", "<": "lt", "<=": "lteq",
	"=": "assign", ".": "dot", ":": "colon", "|": "pipe", ",": "comma", ";": "semicolon",
}

// Numbers as Jinja's lexer knows them.
var (
	floatForm   = regexp.MustCompile(`^([0-9]+_)*[0-9]+((\.([0-9]+_)*[0-9]+)?[eE][+\-]?([0-9]+_)*[0-9]+|\.([0-9]+_)*[0-9]+)`)
	integerForm = regexp.MustCompile(`^(0[bB](_?[01])+|0[oO](_?[0-7])+|0[xX](_?[0-9a-fA-F])+|[1-9](_?[0-9])*|0(_?0)*)`)
)

// lexer cuts a template into tokens, with trim_blocks and lstrip_blocks.
type lexer struct {
	source string
	pos    int
	line   int
	tokens []token
	starts bool   // what was read last ended a line, or nothing was
	open   []byte // closing brackets that are awaited in a tag
}

// lex is all tokens of a template, eof last.
func lex(source string, line *int) []token {
	if len(source) > mostSource {
		fail("Limit", "the template has more than %d KiB", mostSource>>10)
	}
	if !utf8.ValidString(source) {
		fail("TemplateSyntaxError", "the template is not valid UTF-8")
	}
	source = newlines(source)
	l := &lexer{source: strings.TrimSuffix(source, "\n"), line: 1, starts: true}
	for l.pos < len(l.source) {
		l.root()
		*line = l.line
	}
	l.add("eof", "")
	return l.tokens
}

// newlines writes every end of a line as \n.
func newlines(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
}

func (l *lexer) fail(format string, args ...any) {
	panic(&Error{Class: "TemplateSyntaxError", Message: sprintf(format, args...), Line: l.line})
}

func (l *lexer) add(kind, text string) {
	l.tokens = append(l.tokens, token{kind: kind, text: text, line: l.line})
}

// advance moves to a position and counts the lines between.
func (l *lexer) advance(to int) {
	passed := l.source[l.pos:to]
	l.line += strings.Count(passed, "\n")
	l.pos = to
	l.starts = strings.HasSuffix(passed, "\n")
}

// root reads text up to the next tag, and that tag.
func (l *lexer) root() {
	rest := l.source[l.pos:]
	// The first tag of any kind.
	at := -1
	for i := 0; i+1 < len(rest); i++ {
		if rest[i] == '{' && (rest[i+1] == '%' || rest[i+1] == '{' || rest[i+1] == '#') {
			at = i
			break
		}
	}
	if at < 0 {
		l.add("data", rest)
		l.advance(len(l.source))
		return
	}
	// Its kind and sign; a sign strips white space of the text before it.
	kind := rest[at+1]
	sign, after := signAt(rest, at+2)
	raw := -1
	// raw has its text as it stands.
	if kind == '%' {
		raw = rawEnd(rest, after)
	}
	l.data(rest[:at], sign, kind != '{')
	if raw >= 0 {
		l.advance(l.pos + raw - at)
		l.raw()
		return
	}
	l.advance(l.pos + after - at)
	switch kind {
	case '#':
		l.comment()
	case '%':
		l.tag("block_begin", "block_end", '%')
	default:
		l.tag("variable_begin", "variable_end", '}')
	}
}

func signAt(s string, i int) (byte, int) {
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		return s[i], i + 1
	}
	return 0, i
}

// data adds text that stands before a tag, with the blanks that the tag takes away.
func (l *lexer) data(text string, sign byte, block bool) {
	kept := text
	switch {
	case sign == '-':
		kept = strings.TrimRightFunc(text, isSpace)
	case sign != '+' && block:
		from := strings.LastIndexByte(text, '\n') + 1
		if (from > 0 || l.starts) && from < len(text) && strings.TrimLeftFunc(text[from:], isSpace) == "" {
			kept = text[:from]
		}
	}
	if kept != "" {
		l.add("data", kept)
	}
	l.advance(l.pos + len(text))
}

// rawEnd is where the body of a raw block begins whose opening's sign ends at i; -1: no such
// opening.
func rawEnd(s string, i int) int {
	i = skipSpace(s, i)
	if !strings.HasPrefix(s[i:], "raw") {
		return -1
	}
	i = skipSpace(s, i+3)
	switch {
	case strings.HasPrefix(s[i:], "-%}"):
		return skipSpace(s, i+3)
	case strings.HasPrefix(s[i:], "%}"):
		return i + 2
	}
	return -1
}

func skipSpace(s string, i int) int { return len(s) - len(strings.TrimLeftFunc(s[i:], isSpace)) }

// raw reads up to endraw, as it stands.
func (l *lexer) raw() {
	rest := l.source[l.pos:]
	for from := 0; ; {
		at := strings.Index(rest[from:], "{%")
		if at < 0 {
			l.fail("Missing end of raw directive")
		}
		at += from
		sign, i := signAt(rest, at+2)
		i = skipSpace(rest, i)
		if strings.HasPrefix(rest[i:], "endraw") {
			if end := blockEnd(rest, skipSpace(rest, i+6), '%'); end >= 0 {
				l.data(rest[:at], sign, true)
				l.advance(l.pos + end - at)
				return
			}
		}
		from = at + 2
	}
}

// blockEnd is the position behind the end of a block or comment at i, and what it takes away; -1:
// there is no end at i.
func blockEnd(s string, i int, mark byte) int {
	end := string(mark) + "}"
	switch rest := s[i:]; {
	case strings.HasPrefix(rest, "+"+end):
		return i + 3
	case strings.HasPrefix(rest, "-"+end):
		return skipSpace(s, i+3)
	case strings.HasPrefix(rest, end+"\n"):
		return i + 3
	case strings.HasPrefix(rest, end):
		return i + 2
	}
	return -1
}

func (l *lexer) comment() {
	rest := l.source[l.pos:]
	at := strings.Index(rest, "#}")
	if at < 0 {
		l.fail("Missing end of comment tag")
	}
	if at > 0 && (rest[at-1] == '-' || rest[at-1] == '+') {
		at--
	}
	l.advance(l.pos + blockEnd(rest, at, '#'))
}

// tag reads the tokens of a tag up to its end.
func (l *lexer) tag(begin, end string, mark byte) {
	l.add(begin, "")
	l.open = l.open[:0]
	for l.pos < len(l.source) {
		if len(l.open) == 0 {
			if to := l.tagEnd(mark); to >= 0 {
				l.add(end, "")
				l.advance(to)
				return
			}
		}
		l.item()
	}
}

// tagEnd is the position behind the tag's end, if that stands here; -1 otherwise.
func (l *lexer) tagEnd(mark byte) int {
	if mark == '%' {
		return blockEnd(l.source, l.pos, '%')
	}
	switch rest := l.source[l.pos:]; {
	case strings.HasPrefix(rest, "-}}"):
		return skipSpace(l.source, l.pos+3)
	case strings.HasPrefix(rest, "}}"):
		return l.pos + 2
	}
	return -1
}

// item reads one token inside a tag.
func (l *lexer) item() {
	rest := l.source[l.pos:]
	c, _ := utf8.DecodeRuneInString(rest)
	// White space, number, name, text, operator.
	if isSpace(c) {
		l.advance(skipSpace(l.source, l.pos))
		return
	}
	if c >= '0' && c <= '9' {
		l.number(rest)
		return
	}
	if n := nameLength(rest); n > 0 {
		name := rest[:n]
		if !isIdentifier(name) {
			l.fail("Invalid character in identifier")
		}
		if !norm.NFKC.IsNormalString(name) {
			unsupported("the name %s, which Python normalizes to another spelling", name)
		}
		l.add("name", name)
		l.advance(l.pos + n)
		return
	}
	if c == '\'' || c == '"' {
		if n := stringLength(rest); n > 0 {
			l.add("string", unescape(newlines(rest[1:n-1]), l.fail))
			l.advance(l.pos + n)
			return
		}
	}
	l.operator(rest, c)
}

func (l *lexer) number(rest string) {
	afterDot := l.pos > 0 && l.source[l.pos-1] == '.'
	if form := floatForm.FindString(rest); form != "" && !afterDot {
		l.add("float", form)
		l.tokens[len(l.tokens)-1].value = literalFloat(form)
		l.advance(l.pos + len(form))
		return
	}
	form := integerForm.FindString(rest)
	if after, _ := utf8.DecodeRuneInString(rest[len(form):]); after >= utf8.RuneSelf && isDecimal(after) {
		unsupported("a number with digits that are not ASCII")
	}
	l.add("integer", form)
	l.tokens[len(l.tokens)-1].value = literalInt(form)
	l.advance(l.pos + len(form))
}

// nameLength is how much of s is a name, by Jinja's pattern.
func nameLength(s string) int {
	for i, c := range s {
		if !isWord(c) && !(c >= utf8.RuneSelf && isIdentifier("a"+string(c))) {
			return i
		}
	}
	return len(s)
}

// stringLength is how much of s is a string with its quotes, 0 where it has no end.
func stringLength(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			return i + 1
		}
	}
	return 0
}

func (l *lexer) operator(rest string, c rune) {
	// The longest operator. Brackets are matched here.
	n := 2
	if len(rest) < 2 || operatorNames[rest[:2]] == "" {
		n = 1
	}
	kind := operatorNames[rest[:min(n, len(rest))]]
	if kind == "" {
		l.fail("unexpected char %s at %d", reprString(string(c)), l.pos)
	}
	switch text := rest[:n]; text {
	case "{":
		l.open = append(l.open, '}')
	case "(":
		l.open = append(l.open, ')')
	case "[":
		l.open = append(l.open, ']')
	case "}", ")", "]":
		if len(l.open) == 0 {
			l.fail("unexpected '%s'", text)
		}
		if last := l.open[len(l.open)-1]; last != text[0] {
			l.fail("unexpected '%s', expected '%c'", text, last)
		}
		l.open = l.open[:len(l.open)-1]
	}
	l.add(kind, rest[:n])
	l.advance(l.pos + n)
}

package jinja

// parser reads tokens into nodes; its functions are those of jinja2.parser.
type parser struct {
	tokens []token
	i      int
	nested int
}

// Bounds on nesting, below those at which Python's parser and compiler give up.
const (
	mostNested  = 60 // expressions in brackets or behind prefixes
	mostBlocks  = 60 // tags in each other
	mostForLoop = 20 // loops in each other, as Python has it ("too many statically nested blocks")
)

func (p *parser) now() *token { return &p.tokens[p.i] }

func (p *parser) peek() *token { return &p.tokens[min(p.i+1, len(p.tokens)-1)] }

func (p *parser) next() *token {
	t := p.now()
	if p.i < len(p.tokens)-1 {
		p.i++
	}
	return t
}

func (p *parser) line() pos { return pos(p.now().line) }

func (p *parser) fail(format string, args ...any) {
	panic(&Error{Class: "TemplateSyntaxError", Message: sprintf(format, args...), Line: p.now().line})
}

func (p *parser) isName(name string) bool { return p.now().kind == "name" && p.now().text == name }

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.next()
		return true
	}
	return false
}

func (p *parser) skip(kind string) bool {
	if p.now().kind == kind {
		p.next()
		return true
	}
	return false
}

func (p *parser) expect(kind string) *token {
	if p.now().kind != kind {
		p.fail("expected token '%s', got '%s'", kind, describe(p.now()))
	}
	return p.next()
}

func (p *parser) expectName(name string) {
	if !p.skipName(name) {
		p.fail("expected token '%s', got '%s'", name, describe(p.now()))
	}
}

func describe(t *token) string {
	if t.kind == "name" {
		return t.text
	}
	return t.kind
}

// deeper counts an expression within another; the caller defers what it returns.
func (p *parser) deeper() func() {
	if p.nested++; p.nested > mostNested {
		p.fail("expressions are nested more than %d deep", mostNested)
	}
	return func() { p.nested-- }
}

func (p *parser) expression(withCond bool) node {
	defer p.deeper()()
	if withCond {
		return p.cond()
	}
	return p.or()
}

func (p *parser) cond() node {
	line, yes := p.line(), p.or()
	for p.skipName("if") {
		test := p.or()
		var no node
		if p.skipName("else") {
			done := p.deeper()
			no = p.cond()
			done()
		}
		yes = &condNode{line, test, yes, no}
		line = p.line()
	}
	return yes
}

// chained reads operands between which operators stand; operator returns "" where none does.
func (p *parser) chained(operand func() node, operator func() string) node {
	line, left, terms := p.line(), operand(), 0
	for op := operator(); op != ""; op = operator() {
		if terms++; terms > 400 {
			p.fail("an expression of more than 400 terms")
		}
		left = &binaryNode{line, op, left, operand()}
		line = p.line()
	}
	return left
}

func (p *parser) byName(name string) func() string {
	return func() string {
		if p.skipName(name) {
			return name
		}
		return ""
	}
}

func (p *parser) byKind(kinds ...string) func() string {
	return func() string {
		for _, k := range kinds {
			if p.now().kind == k {
				return p.next().kind
			}
		}
		return ""
	}
}

func (p *parser) or() node  { return p.chained(p.and, p.byName("or")) }
func (p *parser) and() node { return p.chained(p.not, p.byName("and")) }

func (p *parser) not() node {
	line := p.line()
	if p.skipName("not") {
		defer p.deeper()()
		return &unaryNode{line, "not", p.not()}
	}
	return p.compare()
}

func (p *parser) compare() node {
	line, first := p.line(), p.sum()
	var ops []*operandNode
	for {
		t := p.now()
		op := ""
		switch {
		case t.kind == "eq" || t.kind == "ne" || t.kind == "lt" || t.kind == "lteq" || t.kind == "gt" || t.kind == "gteq":
			op = p.next().kind
		case p.skipName("in"):
			op = "in"
		case p.isName("not") && p.peek().kind == "name" && p.peek().text == "in":
			p.next()
			p.next()
			op = "notin"
		}
		if op == "" {
			break
		}
		ops = append(ops, &operandNode{pos(t.line), op, p.sum()})
		line = p.line()
	}
	if ops == nil {
		return first
	}
	return &compareNode{line, first, ops}
}

func (p *parser) sum() node { return p.chained(p.concat, p.byKind("add", "sub")) }

func (p *parser) concat() node {
	line, parts := p.line(), []node{p.product()}
	for p.skip("tilde") {
		parts = append(parts, p.product())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return &concatNode{line, parts}
}

func (p *parser) product() node {
	return p.chained(p.power, p.byKind("mul", "div", "floordiv", "mod"))
}
func (p *parser) power() node {
	return p.chained(func() node { return p.unary(true) }, p.byKind("pow"))
}

func (p *parser) unary(withFilter bool) node {
	line := p.line()
	var n node
	switch p.now().kind {
	case "sub", "add":
		op := p.next().kind
		done := p.deeper()
		n = &unaryNode{line, op, p.unary(false)}
		done()
	default:
		n = p.primary(false)
	}
	n = p.postfix(n)
	if withFilter {
		n = p.filters(n)
	}
	return n
}

func (p *parser) primary(withNamespace bool) node {
	t, line := p.now(), p.line()
	switch t.kind {
	case "name":
		return p.name(withNamespace)
	// Neighbouring strings are one, as in Python.
	case "string":
		text := ""
		for p.now().kind == "string" {
			text += p.next().text
		}
		return &constNode{line, text}
	case "integer", "float":
		return &constNode{line, p.next().value}
	// Containers; parentheses around one expression are not a tuple.
	case "lparen":
		p.next()
		n := p.tuple(tupleOptions{parenthesised: true, withCond: true})
		p.expect("rparen")
		return n
	case "lbracket":
		p.next()
		items := p.items("rbracket", func() node { return p.expression(true) })
		return &listNode{line, items}
	case "lbrace":
		return p.dict()
	}
	p.fail("unexpected '%s'", describe(t))
	return nil
}

func (p *parser) name(withNamespace bool) node {
	t, line := p.next(), pos(0)
	line = pos(t.line)
	switch t.text {
	case "true", "True":
		return &constNode{line, true}
	case "false", "False":
		return &constNode{line, false}
	case "none", "None":
		return &constNode{line, None{}}
	}
	if withNamespace && p.skip("dot") {
		return &nsRefNode{line, t.text, p.expect("name").text}
	}
	return &nameNode{line, t.text, 'l'}
}

// items reads what stands between commas up to a closing bracket, which it takes.
func (p *parser) items(end string, item func() node) (list []node) {
	for p.now().kind != end {
		if len(list) > 0 {
			p.expect("comma")
			if p.now().kind == end {
				break
			}
		}
		list = append(list, item())
	}
	p.expect(end)
	return list
}

func (p *parser) dict() node {
	line := pos(p.next().line)
	d := &dictNode{pos: line}
	p.items("rbrace", func() node {
		key := p.expression(true)
		p.expect("colon")
		pair := &pairNode{pos(key.at()), key, p.expression(true)}
		d.pairs = append(d.pairs, pair)
		return pair.value
	})
	return d
}

// tupleOptions say how a tuple without brackets is read; end is a name that ends it.
type tupleOptions struct {
	simplified, withCond, parenthesised, withNamespace bool
	end                                                string
}

func (p *parser) tuple(o tupleOptions) node {
	line := p.line()
	var items []node
	isTuple := false
	// Items up to an end; a comma makes it a tuple.
	for {
		if len(items) > 0 {
			p.expect("comma")
		}
		if k := p.now().kind; k == "variable_end" || k == "block_end" || k == "rparen" || o.end != "" && p.isName(o.end) {
			break
		}
		if o.simplified {
			items = append(items, p.primary(o.withNamespace))
		} else {
			items = append(items, p.expression(o.withCond))
		}
		if p.now().kind != "comma" {
			break
		}
		isTuple = true
		line = p.line()
	}
	// One item without a comma is itself; none is an empty tuple in brackets alone.
	if !isTuple {
		if len(items) > 0 {
			return items[0]
		}
		if !o.parenthesised {
			p.fail("Expected an expression, got '%s'", describe(p.now()))
		}
	}
	return &tupleNode{line, items}
}

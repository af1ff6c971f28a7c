package jinja

import "slices"

// parseNodes reads a template's statements.
func parseNodes(tokens []token) []node {
	p := &parser{tokens: tokens}
	return p.body(nil, 0)
}

// body reads text and tags up to one of the ends, at whose name it stops; nil: up to the end.
func (p *parser) body(ends []string, depth int) (list []node) {
	if depth > mostBlocks {
		p.fail("tags are nested more than %d deep", mostBlocks)
	}
	var out []node
	flush := func() {
		if len(out) > 0 {
			list = append(list, &outputNode{pos(out[0].at()), out})
			out = nil
		}
	}
	// Text and outputs go into one node up to the next tag.
	for p.now().kind != "eof" {
		switch t := p.now(); t.kind {
		case "data":
			out = append(out, &dataNode{pos(t.line), t.text})
			p.next()
		case "variable_begin":
			p.next()
			out = append(out, p.tuple(tupleOptions{withCond: true}))
			p.expect("variable_end")
		default:
			flush()
			p.expect("block_begin")
			if name := p.now(); name.kind == "name" && slices.Contains(ends, name.text) {
				return list
			}
			list = append(list, p.statement(depth))
			p.expect("block_end")
		}
	}
	flush()
	if ends != nil {
		p.fail("unexpected end of template; looking for one of %v", ends)
	}
	return list
}

// statements reads a tag's end and the body behind it; the name of the end remains.
func (p *parser) statements(depth int, ends ...string) []node {
	p.skip("colon")
	p.expect("block_end")
	return p.body(ends, depth+1)
}

// toEnd is statements up to one end, which it takes.
func (p *parser) toEnd(depth int, end string) []node {
	list := p.statements(depth, end)
	p.next()
	return list
}

func (p *parser) statement(depth int) node {
	t := p.now()
	if t.kind != "name" {
		p.fail("tag name expected")
	}
	line := pos(t.line)
	// A tag is parsed to its end tag; depth limits how deep tags nest.
	switch t.text {
	case "for":
		return p.forLoop(line, depth)
	case "if":
		return p.ifTag(line, depth)
	case "set":
		return p.set(line, depth)
	case "with":
		return p.with(line, depth)
	case "macro":
		return p.macro(line, depth)
	case "call":
		return p.callBlock(line, depth)
	case "filter":
		p.next()
		filter := p.filter(nil, true).(*filterNode)
		return &filterBlockNode{line, p.toEnd(depth, "endfilter"), filter}
	case "block":
		return p.block(line, depth)
	case "print":
		return p.print(line)
	// Extensions that transformers turns on: loop controls and its generation tag, whose text a mask marks.
	case "break":
		p.next()
		return &breakNode{line}
	case "continue":
		p.next()
		return &continueNode{line}
	case "generation":
		p.next()
		return &callBlockNode{pos: line, body: p.generationBody(depth), generation: true}
	// Tags that are parsed, but fail when they run.
	case "include", "import", "from", "extends":
		return p.loader(line)
	case "autoescape":
		unsupported("the tag autoescape")
	}
	p.fail("Encountered unknown tag '%s'.", t.text)
	return nil
}

// generationBody is the body of a generation block; its tag takes no arguments.
func (p *parser) generationBody(depth int) []node { return p.toEnd(depth, "endgeneration") }

func (p *parser) set(line pos, depth int) node {
	p.next()
	target := p.target(tupleOptions{simplified: true, withNamespace: true})
	if p.skip("assign") {
		return &assignNode{line, target, p.tuple(tupleOptions{withCond: true})}
	}
	filter, _ := p.filter(nil, false).(*filterNode)
	return &assignBlockNode{line, target, filter, p.toEnd(depth, "endset")}
}

func (p *parser) forLoop(line pos, depth int) node {
	p.next()
	f := &forNode{pos: line, target: p.target(tupleOptions{simplified: true, end: "in"})}
	p.expectName("in")
	f.iter = p.tuple(tupleOptions{end: "recursive"})
	if p.skipName("if") {
		f.test = p.expression(true)
	}
	f.recursive = p.skipName("recursive")
	f.body = p.statements(depth, "endfor", "else")
	if p.next().text == "else" {
		f.orElse = p.toEnd(depth, "endfor")
	}
	return f
}

func (p *parser) ifTag(line pos, depth int) node {
	p.next()
	result := &ifNode{pos: line}
	for n := result; ; {
		n.test = p.tuple(tupleOptions{})
		n.body = p.statements(depth, "elif", "else", "endif")
		switch p.next().text {
		case "elif":
			n = &ifNode{pos: p.line()}
			result.elifs = append(result.elifs, n)
			continue
		case "else":
			result.orElse = p.toEnd(depth, "endif")
		}
		return result
	}
}

func (p *parser) with(line pos, depth int) node {
	p.next()
	w := &withNode{pos: line}
	for p.now().kind != "block_end" {
		if len(w.targets) > 0 {
			p.expect("comma")
		}
		target := p.target(tupleOptions{simplified: true})
		setContext(target, 'p')
		w.targets = append(w.targets, target)
		p.expect("assign")
		w.values = append(w.values, p.expression(true))
	}
	w.body = p.toEnd(depth, "endwith")
	return w
}

func (p *parser) macro(line pos, depth int) node {
	p.next()
	m := &macroNode{pos: line, name: p.targetName().name}
	m.args, m.defaults = p.signature()
	m.body = p.toEnd(depth, "endmacro")
	return m
}

func (p *parser) signature() (args []*nameNode, defaults []node) {
	p.expect("lparen")
	seen := map[string]bool{}
	for p.now().kind != "rparen" {
		if len(args) > 0 {
			p.expect("comma")
		}
		arg := p.targetName()
		if seen[arg.name] {
			p.fail("duplicate argument '%s'", arg.name)
		}
		seen[arg.name] = true
		arg.ctx = 'p'
		if p.skip("assign") {
			defaults = append(defaults, p.expression(true))
		} else if len(defaults) > 0 {
			p.fail("non-default argument follows default argument")
		}
		args = append(args, arg)
	}
	p.expect("rparen")
	return args, defaults
}

func (p *parser) callBlock(line pos, depth int) node {
	p.next()
	c := &callBlockNode{pos: line}
	if p.now().kind == "lparen" {
		c.args, c.defaults = p.signature()
	}
	call, is := p.expression(true).(*callNode)
	if !is {
		p.fail("expected call")
	}
	c.call = call
	c.body = p.toEnd(depth, "endcall")
	return c
}

func (p *parser) block(line pos, depth int) node {
	p.next()
	b := &blockNode{pos: line, name: p.expect("name").text}
	b.scoped = p.skipName("scoped")
	b.required = p.skipName("required")
	if b.required {
		unsupported("a required block")
	}
	b.body = p.toEnd(depth, "endblock")
	p.skipName(b.name)
	return b
}

func (p *parser) print(line pos) node {
	p.next()
	out := &outputNode{pos: line}
	for p.now().kind != "block_end" {
		if len(out.nodes) > 0 {
			p.expect("comma")
		}
		out.nodes = append(out.nodes, p.expression(true))
	}
	return out
}

// loader reads tags that need other templates: they fail when they are reached.
func (p *parser) loader(line pos) node {
	l := &loaderNode{pos: line, tag: p.next().text, parts: []node{p.expression(true)}}
	switch l.tag {
	// include TEMPLATE [ignore missing] [with context]
	case "include":
		if p.isName("ignore") && p.peek().text == "missing" {
			p.next()
			p.next()
		}
		p.withContext()
	// import TEMPLATE as NAME [with context]
	case "import":
		p.expectName("as")
		l.targets = append(l.targets, p.targetName().name)
		p.withContext()
	// from TEMPLATE import NAME [as NAME], ... [with context]; a comma may end the list.
	case "from":
		p.expectName("import")
		for first := true; ; first = false {
			if !first {
				p.expect("comma")
			}
			if p.now().kind != "name" {
				p.expect("name")
			}
			if p.withContext() {
				break
			}
			name := p.targetName().name
			if p.skipName("as") {
				name = p.targetName().name
			}
			l.targets = append(l.targets, name)
			if p.withContext() || p.now().kind != "comma" {
				break
			}
		}
	}
	return l
}

func (p *parser) withContext() bool {
	if (p.isName("with") || p.isName("without")) && p.peek().text == "context" {
		p.next()
		p.next()
		return true
	}
	return false
}

func (p *parser) targetName() *nameNode {
	t := p.expect("name")
	n := &nameNode{pos(t.line), t.text, 's'}
	p.assignable(n)
	return n
}

func (p *parser) target(o tupleOptions) node {
	n := p.tuple(o)
	setContext(n, 's')
	p.assignable(n)
	return n
}

func setContext(n node, ctx byte) {
	switch n := n.(type) {
	case *nameNode:
		n.ctx = ctx
	default:
		for _, child := range children(n) {
			setContext(child, ctx)
		}
	}
}

func (p *parser) assignable(n node) {
	switch n := n.(type) {
	case *nameNode:
		if !slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, n.name) {
			return
		}
	case *nsRefNode:
		return
	case *tupleNode:
		for _, item := range n.items {
			p.assignable(item)
		}
		return
	}
	p.fail("can't assign to this")
}

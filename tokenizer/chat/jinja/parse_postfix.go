package jinja

// What follows a value: attributes, subscripts, calls, filters, tests.

func (p *parser) postfix(n node) node {
	for {
		switch p.now().kind {
		case "dot":
			n = p.attribute(n)
		case "lbracket":
			n = p.subscript(n)
		case "lparen":
			n = p.call(n)
		default:
			return n
		}
	}
}

func (p *parser) filters(n node) node {
	for {
		switch {
		case p.now().kind == "pipe":
			n = p.filter(n, false)
		case p.isName("is"):
			n = p.test(n)
		case p.now().kind == "lparen":
			n = p.call(n)
		default:
			return n
		}
	}
}

func (p *parser) attribute(n node) node {
	line := pos(p.next().line)
	t := p.next()
	switch t.kind {
	case "name":
		return &getattrNode{line, n, t.text}
	case "integer":
		return &getitemNode{line, n, &constNode{pos(t.line), t.value}}
	}
	p.fail("expected name or number")
	return nil
}

func (p *parser) subscript(n node) node {
	line := pos(p.next().line)
	var args []node
	for p.now().kind != "rbracket" {
		if len(args) > 0 {
			p.expect("comma")
		}
		args = append(args, p.subscribed())
	}
	p.expect("rbracket")
	if len(args) == 1 {
		return &getitemNode{line, n, args[0]}
	}
	return &getitemNode{line, n, &tupleNode{line, args}}
}

func (p *parser) subscribed() node {
	s := &sliceNode{pos: p.line()}
	ends := func() bool { k := p.now().kind; return k == "colon" || k == "rbracket" || k == "comma" }
	if p.now().kind != "colon" {
		s.start = p.expression(true)
		if p.now().kind != "colon" {
			return s.start
		}
	}
	p.next()
	if !ends() {
		s.stop = p.expression(true)
	}
	if p.skip("colon") && !ends() {
		s.step = p.expression(true)
	}
	return s
}

func (p *parser) call(n node) *callNode {
	line := p.line()
	return &callNode{line, n, p.callArgs()}
}

func (p *parser) callArgs() (a argsNode) {
	p.expect("lparen")
	ensure := func(good bool) {
		if !good {
			p.fail("invalid syntax for function call expression")
		}
	}
	seen := map[string]bool{}
	for first := true; p.now().kind != "rparen"; first = false {
		if !first {
			p.expect("comma")
			if p.now().kind == "rparen" {
				break
			}
		}
		// *args, **kwargs, name=value, value: in an order that Jinja allows.
		switch {
		case p.skip("mul"):
			ensure(a.dynArgs == nil && a.dynKwargs == nil)
			a.dynArgs = p.expression(true)
		case p.skip("pow"):
			ensure(a.dynKwargs == nil)
			a.dynKwargs = p.expression(true)
		case p.now().kind == "name" && p.peek().kind == "assign":
			ensure(a.dynKwargs == nil && !seen[p.now().text])
			key := p.next().text
			seen[key] = true
			if !isASCII(key) {
				unsupported("a keyword argument whose name is not ASCII")
			}
			p.next()
			value := p.expression(true)
			a.kwargs = append(a.kwargs, &keywordNode{pos(value.at()), key, value})
		default:
			ensure(a.dynArgs == nil && a.dynKwargs == nil && len(a.kwargs) == 0)
			a.args = append(a.args, p.expression(true))
		}
	}
	p.expect("rparen")
	return a
}

// filter reads filters that follow each other; inline: the first has no bar before it.
func (p *parser) filter(n node, inline bool) node {
	for chain := 0; p.now().kind == "pipe" || inline; chain++ {
		if chain > 400 {
			p.fail("more than 400 filters in a row")
		}
		if !inline {
			p.next()
		}
		line := p.line()
		f := &filterNode{pos: line, value: n, name: p.dotted()}
		if p.now().kind == "lparen" {
			f.argsNode = p.callArgs()
		}
		n, inline = f, false
	}
	return n
}

func (p *parser) dotted() string {
	name := p.expect("name").text
	for p.skip("dot") {
		name += "." + p.expect("name").text
	}
	return name
}

func (p *parser) test(n node) node {
	line := pos(p.next().line)
	negated := p.skipName("not")
	t := &testNode{pos: line, value: n, name: p.dotted()}
	switch k := p.now(); k.kind {
	case "lparen":
		t.argsNode = p.callArgs()
	case "name", "string", "integer", "float", "lbracket", "lbrace":
		if k.kind == "name" && (k.text == "else" || k.text == "or" || k.text == "and") {
			break
		}
		if k.kind == "name" && k.text == "is" {
			p.fail("You cannot chain multiple tests with is")
		}
		done := p.deeper()
		t.args = []node{p.postfix(p.primary(false))}
		done()
	}
	if negated {
		return &unaryNode{line, "not", t}
	}
	return t
}

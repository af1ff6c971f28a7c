package jinja

func (c *compiler) statement(n node, f *frame) stmt {
	// Each kind of statement has its compiler.
	var inner stmt
	switch n := n.(type) {
	case *outputNode:
		inner = c.output(n, f)
	case *assignNode:
		inner = c.assign(n, f)
	case *assignBlockNode:
		inner = c.assignBlock(n, f)
	case *forNode:
		inner = c.forLoop(n, f)
	case *ifNode:
		inner = c.ifTag(n, f)
	case *macroNode:
		inner = c.macro(n, f)
	case *callBlockNode:
		inner = c.callBlock(n, f)
	case *filterBlockNode:
		inner = c.filterBlock(n, f)
	case *withNode:
		inner = c.with(n, f)
	case *blockNode:
		inner = c.block(n, f)
	case *loaderNode:
		inner = c.loader(n, f)
	case *breakNode, *continueNode:
		return c.control(n, f)
	default:
		c.fail(n, "not a statement")
	}
	// Before a statement runs, errors get its line, and the statement counts as a step.
	line := n.at()
	return func(r *run, a *act, out *buffer) signal {
		r.line = line
		r.step(1)
		return inner(r, a, out)
	}
}

// output writes text and values.
func (c *compiler) output(n *outputNode, f *frame) stmt {
	type piece struct {
		text  string
		value expr
		line  int
	}
	var pieces []piece
	for _, child := range n.nodes {
		if data, is := child.(*dataNode); is {
			pieces = append(pieces, piece{text: data.text})
			continue
		}
		*c.line = child.at()
		pieces = append(pieces, piece{value: c.expr(child, f), line: child.at()})
	}
	return func(r *run, a *act, out *buffer) signal {
		for _, p := range pieces {
			if p.value == nil {
				r.write(out, p.text)
				continue
			}
			r.line = p.line
			r.write(out, r.str(p.value(r, a)))
		}
		return proceed
	}
}

// assigner gives a target its value.
type assigner func(r *run, a *act, v Value)

func (c *compiler) assigner(n node, f *frame) assigner {
	switch n := n.(type) {
	case *nameNode:
		to := c.address(f.fn, c.ref(n, f, n.name))
		export := f.toplevel && !f.loop && !f.block
		return func(r *run, a *act, v Value) {
			to.set(a, v)
			if export {
				a.ctx.vars[n.name] = v
			}
		}
	case *nsRefNode:
		from := c.address(f.fn, c.ref(n, f, n.name))
		return func(r *run, a *act, v Value) { r.setAttribute(from.get(a), n.attr, v) }
	}
	var items []assigner
	for _, child := range children(n) {
		items = append(items, c.assigner(child, f))
	}
	return func(r *run, a *act, v Value) {
		for i, item := range r.unpack(v, len(items)) {
			items[i](r, a, item)
		}
	}
}

// setAttribute is {% set x.name = v %}.
func (r *run) setAttribute(x Value, name string, v Value) {
	switch x := x.(type) {
	case *namespace:
		if name[0] == '_' {
			fail("SecurityError", "chat templates cannot set an attribute of a namespace if its name begins with an underscore: %s", name)
		}
		r.set(x.attrs, name, v)
	case *Dict:
		unsupported("a set block that assigns to a key of a dict")
	default:
		fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object")
	}
}

// unpack is exactly n items of v.
func (r *run) unpack(v Value, n int) []Value {
	next := r.iterate(v)
	items := make([]Value, 0, n)
	for len(items) < n {
		item := next()
		if item == nil {
			valueError("not enough values to unpack (expected %d, got %d)", n, len(items))
		}
		items = append(items, item)
	}
	if next() != nil {
		valueError("too many values to unpack (expected %d)", n)
	}
	return items
}

func (c *compiler) assign(n *assignNode, f *frame) stmt {
	var spaces []address
	findAll(n, func(child node) bool {
		if ref, is := child.(*nsRefNode); is {
			spaces = append(spaces, c.address(f.fn, c.ref(ref, f, ref.name)))
		}
		return true
	})
	value, target := c.expr(n.value, f), c.assigner(n.target, f)
	return func(r *run, a *act, _ *buffer) signal {
		for _, p := range spaces {
			if _, is := p.get(a).(*namespace); !is {
				fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object")
			}
		}
		target(r, a, value(r, a))
		return proceed
	}
}

func (c *compiler) assignBlock(n *assignBlockNode, f *frame) stmt {
	inner := f.inner()
	inner.buffered = true
	inner.symbols.analyze(n)
	init := c.enter(inner)
	body := c.statements(n.body, inner)
	target := c.assigner(n.target, f)
	filtered := c.blockFilter(n.filter, inner)
	leave := c.leave(inner)
	return func(r *run, a *act, _ *buffer) signal {
		r.enterFrame(a, init)
		var text buffer
		if sig := runAll(r, a, &text, body); sig != proceed {
			return sig
		}
		target(r, a, filtered(r, a, r.take(&text)))
		leaveFrame(a, leave)
		return proceed
	}
}

// blockFilter applies a block's filters to its text; nil: none.
func (c *compiler) blockFilter(n *filterNode, f *frame) func(*run, *act, string) Value {
	if n == nil {
		return func(_ *run, _ *act, text string) Value { return text }
	}
	slot := f.fn.slot("the text of a filter block")
	apply := c.expr(blockText(n, slot), f)
	return func(r *run, a *act, text string) Value {
		a.slots[slot] = text
		return apply(r, a)
	}
}

// blockText is a chain of filters over what a slot holds.
func blockText(n *filterNode, slot int) *filterNode {
	copied := *n
	if inner, is := n.value.(*filterNode); is {
		copied.value = blockText(inner, slot)
	} else {
		copied.value = &slotNode{n.pos, slot}
	}
	return &copied
}

// slotNode stands for the value of a slot.
type slotNode struct {
	pos
	slot int
}

func (c *compiler) filterBlock(n *filterBlockNode, f *frame) stmt {
	inner := f.inner()
	inner.symbols.analyze(n)
	inner.buffered = true
	init := c.enter(inner)
	body := c.statements(n.body, inner)
	filtered := c.blockFilter(n.filter, inner)
	leave := c.leave(inner)
	return func(r *run, a *act, out *buffer) signal {
		r.enterFrame(a, init)
		var text buffer
		if sig := runAll(r, a, &text, body); sig != proceed {
			return sig
		}
		result := filtered(r, a, r.take(&text))
		s, is := textOf(result)
		if !is {
			typeError("the result of a filter block has the type %s; it must be text", typeName(result))
		}
		r.write(out, s)
		leaveFrame(a, leave)
		return proceed
	}
}

func (c *compiler) ifTag(n *ifNode, f *frame) stmt {
	soft := f.softened()
	type branch struct {
		test expr
		body []stmt
	}
	branches := []branch{{c.expr(n.test, soft), c.statements(n.body, soft)}}
	for _, e := range n.elifs {
		branches = append(branches, branch{c.expr(e.test, soft), c.statements(e.body, soft)})
	}
	orElse := c.statements(n.orElse, soft)
	return func(r *run, a *act, out *buffer) signal {
		for _, b := range branches {
			if r.truth(b.test(r, a)) {
				return runAll(r, a, out, b.body)
			}
		}
		return runAll(r, a, out, orElse)
	}
}

func (c *compiler) with(n *withNode, f *frame) stmt {
	inner := f.inner()
	inner.symbols.analyze(n)
	init := c.enter(inner)
	var values []expr
	var targets []assigner
	for i, v := range n.values {
		values = append(values, c.expr(v, f))
		targets = append(targets, c.assigner(n.targets[i], inner))
	}
	body := c.statements(n.body, inner)
	leave := c.leave(inner)
	return func(r *run, a *act, out *buffer) signal {
		r.enterFrame(a, init)
		for i, v := range values {
			targets[i](r, a, v(r, a))
		}
		if sig := runAll(r, a, out, body); sig != proceed {
			return sig
		}
		leaveFrame(a, leave)
		return proceed
	}
}

// block runs a block where it stands; its names come from the context.
func (c *compiler) block(n *blockNode, f *frame) stmt {
	made := c.blocks[n.name]
	locals := map[string]address{}
	if n.scoped {
		for name, id := range f.symbols.stored() {
			locals[name] = c.address(f.fn, id)
		}
	}
	return func(r *run, a *act, out *buffer) signal {
		r.enter()
		ctx := a.ctx
		if n.scoped {
			r.step(len(a.ctx.vars) + len(a.ctx.parent) + len(locals))
			ctx = &context{vars: map[string]Value{}, parent: a.ctx.all()}
			for name, p := range locals {
				if v := p.get(a); v != nil {
					ctx.parent[name] = v
				}
			}
		}
		inner := made.fn.act(nil, ctx)
		r.enterFrame(inner, made.init)
		runAll(r, inner, out, made.body)
		r.leave()
		return proceed
	}
}

// loader evaluates the template's name, then fails: transformers gives no loader.
func (c *compiler) loader(n *loaderNode, f *frame) stmt {
	if n.tag == "extends" && !f.toplevel {
		c.fail(n, "cannot use extend from a non top-level scope")
	}
	name := c.expr(n.parts[0], f)
	return func(r *run, a *act, _ *buffer) signal {
		name(r, a)
		typeError("no loader for this environment specified ({%% %s %%})", n.tag)
		return proceed
	}
}

func (c *compiler) control(n node, f *frame) stmt {
	if f.fn.loops == 0 {
		c.fail(n, "break or continue outside of a loop")
	}
	sig := breaks
	if _, is := n.(*continueNode); is {
		sig = continues
	}
	return func(*run, *act, *buffer) signal { return sig }
}

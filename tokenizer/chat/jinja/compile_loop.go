package jinja

// loopParts are the compiled pieces of a for.
type loopParts struct {
	iter         expr
	filter       func(r *run, a *act, items Value) Value // nil: no test
	init, orInit []entry
	body, orElse []stmt
	hasElse      bool
	target       assigner
	slot         int // of the variable loop; -1: not used
	leave, after []int
}

func (c *compiler) forLoop(n *forNode, f *frame) stmt {
	c.checkLoopName(n)
	inner, orElse := f.inner(), f.inner()
	inner.loop = true
	// The variable loop costs something; it is made where the body can see it.
	extended := n.recursive || len(undeclared(n.body, "loop")) > 0 || hasScopedBlock(n)
	if n.recursive {
		inner.fn = newFunction(f.fn)
		inner.buffered = true
		orElse.fn, orElse.buffered = inner.fn, true
	}
	if inner.fn.loops >= mostForLoop {
		c.fail(n, "loops are nested more than %d deep", mostForLoop)
	}
	p := &loopParts{slot: -1, hasElse: n.orElse != nil}
	if extended {
		inner.symbols.declareParameter("loop")
	}
	// Names of body and else, each in a frame of its own.
	inner.symbols.analyzeFor(n, "body")
	if p.hasElse {
		orElse.symbols.analyzeFor(n, "else")
	}
	// The test filters before loop counts.
	if n.test != nil {
		p.filter = c.loopTest(n, f)
	}
	// The parts in the order in which they run.
	p.init = c.enter(inner)
	if extended {
		p.slot = inner.fn.slots[inner.symbols.ref("loop")]
	}
	p.target = c.assigner(n.target, inner)
	inner.fn.loops++
	p.body = c.statements(n.body, inner)
	inner.fn.loops--
	p.leave = c.leave(inner)
	if p.hasElse {
		p.orInit = c.enter(orElse)
		p.orElse = c.statements(n.orElse, orElse)
		p.after = c.leave(orElse)
	}
	p.iter = c.expr(n.iter, f)
	if n.recursive {
		return p.recursive(inner.fn)
	}
	return func(r *run, a *act, out *buffer) signal { return p.run(r, a, out, p.iter(r, a), nil, 0) }
}

// checkLoopName refuses loops inside of which the name loop is assigned.
func (c *compiler) checkLoopName(n *forNode) {
	findAll(n, func(child node) bool {
		if name, is := child.(*nameNode); is && name.ctx == 's' && name.name == "loop" {
			c.fail(name, "Can't assign to special loop variable in for-loop target")
		}
		return true
	})
}

func hasScopedBlock(n node) bool {
	found := false
	findAll(n, func(child node) bool {
		if b, is := child.(*blockNode); is && b.scoped {
			found = true
		}
		return !found
	})
	return found
}

// loopTest is the generator that hands on the items that pass a loop's test.
func (c *compiler) loopTest(n *forNode, f *frame) func(*run, *act, Value) Value {
	frame := f.inner()
	frame.fn = newFunction(f.fn)
	frame.symbols.analyzeFor(n, "test")
	init := c.enter(frame)
	target, test := c.assigner(n.target, frame), c.expr(n.test, frame)
	again := c.loadTarget(n.target, frame)
	return func(r *run, a *act, items Value) Value {
		inner := frame.fn.act(a, a.ctx)
		var next func() Value
		return newGenerator(func() Value {
			if next == nil {
				next = r.iterate(items)
				r.enterFrame(inner, init)
			}
			for v := next(); v != nil; v = next() {
				target(r, inner, v)
				if r.truth(test(r, inner)) {
					return again(r, inner)
				}
			}
			return nil
		})
	}
}

// loadTarget is what a loop's target holds, as the values it was given.
func (c *compiler) loadTarget(n node, f *frame) expr {
	if name, is := n.(*nameNode); is {
		from := c.address(f.fn, c.ref(name, f, name.name))
		return func(_ *run, a *act) Value { return from.get(a) }
	}
	var items []expr
	for _, child := range children(n) {
		items = append(items, c.loadTarget(child, f))
	}
	return func(r *run, a *act) Value {
		list := make([]Value, len(items))
		for i, item := range items {
			list[i] = item(r, a)
		}
		return r.tuple(list...)
	}
}

// run goes over the items. As in the code that Jinja writes, else runs unless some body came to
// its end: one that only breaks or continues does not count.
func (p *loopParts) run(r *run, a *act, out *buffer, items Value, recurse *recursion, depth int) signal {
	if p.filter != nil {
		outer := a // the test is a function of the frame around the loop
		if recurse != nil {
			outer = recurse.outer
		}
		items = p.filter(r, outer, items)
	}
	loop := newLoop(r, items, recurse, depth)
	complete := false
	for v := loop.next(r); v != nil; v = loop.next(r) {
		r.step(1)
		p.target(r, a, v)
		if p.slot >= 0 {
			a.slots[p.slot] = loop
		}
		r.enterFrame(a, p.init)
		sig := runAll(r, a, out, p.body)
		if sig == breaks {
			break
		}
		complete = complete || sig == proceed
	}
	leaveFrame(a, p.leave)
	if complete || !p.hasElse {
		return proceed
	}
	r.enterFrame(a, p.orInit)
	if sig := runAll(r, a, out, p.orElse); sig != proceed {
		return sig
	}
	leaveFrame(a, p.after)
	return proceed
}

// recursion renders the body of a recursive loop over other items.
type recursion struct {
	parts *loopParts
	fn    *function
	outer *act
}

func (x *recursion) render(r *run, items Value, depth int) string {
	r.enter()
	var out buffer
	x.parts.run(r, x.fn.act(x.outer, x.outer.ctx), &out, items, x, depth)
	r.leave()
	return r.take(&out)
}

func (p *loopParts) recursive(fn *function) stmt {
	return func(r *run, a *act, out *buffer) signal {
		x := &recursion{p, fn, a}
		r.write(out, x.render(r, p.iter(r, a), 0))
		return proceed
	}
}

package jinja

import (
	"math"
	"math/big"
)

func (c *compiler) expr(n node, f *frame) expr {
	inner := c.bare(n, f)
	if _, plain := n.(*constNode); !plain && c.isConstant(n) {
		inner = guarded(inner)
	}
	return func(r *run, a *act) Value {
		r.step(1)
		return inner(r, a)
	}
}

// guarded refuses numbers that Jinja cannot write into the code it makes of constants: it folds
// them before it runs anything.
func guarded(inner expr) expr {
	return func(r *run, a *act) Value {
		v := inner(r, a)
		switch x := v.(type) {
		case float64:
			if math.IsNaN(x) || math.IsInf(x, 0) {
				unsupported("a constant expression that gives %s", floatText(x))
			}
		case *big.Int:
			if x.BitLen() > 14_000 {
				unsupported("a constant expression that gives an int of more than %d digits", mostDigits)
			}
		}
		return v
	}
}

// isConstant reports whether Jinja may compute an expression before it runs the template.
func (c *compiler) isConstant(n node) bool {
	if known, found := c.known[n]; found {
		return known
	}
	result := true
	switch n.(type) {
	case *nameNode, *nsRefNode, *callNode, *slotNode:
		result = false
	}
	for _, child := range expressionChildren(n) {
		result = result && child != nil && c.isConstant(child)
	}
	c.known[n] = result
	return result
}

func (c *compiler) bare(n node, f *frame) expr {
	switch n := n.(type) {
	// Leaves and containers.
	case *constNode:
		return c.constant(n)
	case *nameNode:
		return c.name(n, f)
	case *slotNode:
		return func(_ *run, a *act) Value { return a.slots[n.slot] }
	case *tupleNode:
		items := c.exprs(n.items, f)
		return func(r *run, a *act) Value { return r.tuple(items.values(r, a)...) }
	case *listNode:
		items := c.exprs(n.items, f)
		return func(r *run, a *act) Value { return r.list(items.values(r, a)) }
	case *dictNode:
		return c.dict(n, f)
	// Operators.
	case *binaryNode:
		return c.binary(n, f)
	case *unaryNode:
		return c.unary(n, f)
	case *compareNode:
		return c.compare(n, f)
	case *concatNode:
		return c.concat(n, f)
	case *condNode:
		return c.cond(n, f)
	// Attributes, items, calls, filters and tests.
	case *getattrNode:
		object := c.expr(n.object, f)
		return func(r *run, a *act) Value { return r.getattr(object(r, a), n.attr) }
	case *getitemNode:
		return c.getitem(n, f)
	case *callNode:
		return c.call(n, f)
	case *filterNode:
		return c.filter(n, f)
	case *testNode:
		return c.test(n, f)
	}
	c.fail(n, "invalid syntax")
	return nil
}

func (c *compiler) constant(n *constNode) expr {
	if x, is := n.value.(float64); is && math.IsInf(x, 0) {
		unsupported("a number that is too large for a float")
	}
	return func(*run, *act) Value { return n.value }
}

func (c *compiler) name(n *nameNode, f *frame) expr {
	id := c.ref(n, f, n.name)
	from := c.address(f.fn, id)
	sure := false // Jinja trusts parameters to have a value
	if l, found := f.symbols.findLoad(id); found && l.action == loadParameter {
		sure = len(c.params) == 0 || !c.params[len(c.params)-1][id]
	}
	return func(_ *run, a *act) Value {
		v := from.get(a)
		if v == nil {
			if sure {
				unsupported("the variable %s is used after the loop or macro that gave it a value", n.name)
			}
			return undefinedName(n.name)
		}
		return v
	}
}

type exprList []expr

func (c *compiler) exprs(list []node, f *frame) exprList {
	made := make(exprList, len(list))
	for i, n := range list {
		made[i] = c.expr(n, f)
	}
	return made
}

func (l exprList) values(r *run, a *act) []Value {
	out := make([]Value, len(l))
	for i, e := range l {
		out[i] = e(r, a)
	}
	return out
}

func (c *compiler) dict(n *dictNode, f *frame) expr {
	var keys, values exprList
	for _, p := range n.pairs {
		keys, values = append(keys, c.expr(p.key, f)), append(values, c.expr(p.value, f))
	}
	return func(r *run, a *act) Value {
		d := NewDict()
		r.alloc(64)
		for i := range keys {
			k := keys[i](r, a)
			r.set(d, k, values[i](r, a))
		}
		return d
	}
}

func (c *compiler) binary(n *binaryNode, f *frame) expr {
	left, right := c.expr(n.left, f), c.expr(n.right, f)
	switch n.op {
	case "and":
		return func(r *run, a *act) Value {
			if v := left(r, a); !r.truth(v) {
				return v
			}
			return right(r, a)
		}
	case "or":
		return func(r *run, a *act) Value {
			if v := left(r, a); r.truth(v) {
				return v
			}
			return right(r, a)
		}
	}
	op := operators[n.op]
	return func(r *run, a *act) Value {
		x := left(r, a)
		return op(r, x, right(r, a))
	}
}

func (c *compiler) unary(n *unaryNode, f *frame) expr {
	value := c.expr(n.value, f)
	switch n.op {
	case "not":
		return func(r *run, a *act) Value { return !r.truth(value(r, a)) }
	case "sub":
		return func(r *run, a *act) Value { return negative(value(r, a)) }
	}
	return func(r *run, a *act) Value { return positive(value(r, a)) }
}

func (c *compiler) compare(n *compareNode, f *frame) expr {
	first := c.expr(n.first, f)
	var ops []string
	var values exprList
	for _, o := range n.ops {
		ops, values = append(ops, o.op), append(values, c.expr(o.value, f))
	}
	return func(r *run, a *act) Value {
		left := first(r, a)
		for i, op := range ops {
			right := values[i](r, a)
			if !r.compare(op, left, right) {
				return false
			}
			left = right
		}
		return true
	}
}

func (c *compiler) concat(n *concatNode, f *frame) expr {
	parts := c.exprs(n.parts, f)
	return func(r *run, a *act) Value {
		var b buffer
		for _, v := range parts.values(r, a) {
			r.write(&b, r.str(v))
		}
		return r.take(&b)
	}
}

func (c *compiler) cond(n *condNode, f *frame) expr {
	soft := f.softened()
	test, yes := c.expr(n.test, soft), c.expr(n.yes, soft)
	no := func(*run, *act) Value {
		return &Undefined{message: sprintf("the inline if-expression on line %d evaluated to false and no else section was defined.", n.at())}
	}
	if n.no != nil {
		no = c.expr(n.no, soft)
	}
	return func(r *run, a *act) Value {
		if r.truth(test(r, a)) {
			return yes(r, a)
		}
		return no(r, a)
	}
}

func (c *compiler) getitem(n *getitemNode, f *frame) expr {
	object := c.expr(n.object, f)
	s, is := n.index.(*sliceNode)
	if !is {
		index := c.expr(n.index, f)
		return func(r *run, a *act) Value {
			x := object(r, a)
			return r.getitem(x, index(r, a))
		}
	}
	bound := func(n node) expr {
		if n == nil {
			return func(*run, *act) Value { return None{} }
		}
		return c.expr(n, f)
	}
	start, stop, step := bound(s.start), bound(s.stop), bound(s.step)
	return func(r *run, a *act) Value {
		x := object(r, a)
		from, to := start(r, a), stop(r, a)
		return r.slice(x, from, to, step(r, a))
	}
}

// argExprs are the compiled arguments of a call, filter or test.
type argExprs struct {
	pos       exprList
	names     []string
	named     exprList
	dynArgs   expr
	dynKwargs expr
}

func (c *compiler) args(n *argsNode, f *frame) *argExprs {
	e := &argExprs{pos: c.exprs(n.args, f)}
	for _, k := range n.kwargs {
		e.names, e.named = append(e.names, k.key), append(e.named, c.expr(k.value, f))
	}
	if n.dynArgs != nil {
		e.dynArgs = c.expr(n.dynArgs, f)
	}
	if n.dynKwargs != nil {
		e.dynKwargs = c.expr(n.dynKwargs, f)
	}
	return e
}

func (e *argExprs) evaluate(r *run, a *act) arguments {
	// Written ones, then the items of *args, then those of **kwargs.
	given := arguments{pos: e.pos.values(r, a)}
	for i, name := range e.names {
		given.named = append(given.named, namedArg{name, e.named[i](r, a)})
	}
	if e.dynArgs != nil {
		given.pos = append(given.pos, r.all(e.dynArgs(r, a))...)
	}
	if e.dynKwargs != nil {
		d, is := e.dynKwargs(r, a).(*Dict)
		if !is {
			typeError("argument after ** must be a mapping")
		}
		written := len(given.named)
		r.step(d.Len() * (1 + written))
		for i, k := range d.keys {
			name, is := textOf(k)
			if !is {
				typeError("keywords must be strings")
			}
			if (arguments{named: given.named[:written]}).get(name) != nil {
				typeError("got multiple values for keyword argument '%s'", name)
			}
			given.named = append(given.named, namedArg{name, d.values[i]})
		}
	}
	return given
}

func (c *compiler) call(n *callNode, f *frame) expr {
	callee, args := c.expr(n.callee, f), c.args(&n.argsNode, f)
	line := n.at()
	return func(r *run, a *act) Value {
		x := callee(r, a)
		given := args.evaluate(r, a)
		r.line = line
		return r.call(x, given)
	}
}

func (c *compiler) filter(n *filterNode, f *frame) expr {
	apply, known := filters[n.name]
	if !known && !f.soft {
		c.fail(n, "No filter named '%s'.", n.name)
	}
	value, args := c.expr(n.value, f), c.args(&n.argsNode, f)
	return func(r *run, a *act) Value {
		v := value(r, a)
		given := args.evaluate(r, a)
		if !known {
			fail("TemplateRuntimeError", "No filter named '%s' found.", n.name)
		}
		return apply.call(r, v, given)
	}
}

func (c *compiler) test(n *testNode, f *frame) expr {
	apply, known := tests[n.name]
	if !known && !f.soft {
		c.fail(n, "No test named '%s'.", n.name)
	}
	value, args := c.expr(n.value, f), c.args(&n.argsNode, f)
	return func(r *run, a *act) Value {
		v := value(r, a)
		given := args.evaluate(r, a)
		if !known {
			fail("TemplateRuntimeError", "No test named '%s' found.", n.name)
		}
		return apply.call(r, v, given)
	}
}

package jinja

// macroCode is a macro's compiled body.
type macroCode struct {
	name        string
	hasName     bool
	args        []string
	slots       []int // of the arguments, then of caller, kwargs, varargs where they are used
	caller      bool
	kwargs      bool
	varargs     bool
	defaults    []expr // nil: none
	init        []entry
	body        []stmt
	fn          *function
	hasCallerIn bool // caller is among args
}

// macroValue is a macro that templates call.
type macroValue struct {
	code  *macroCode
	outer *act
}

// macroBody compiles a macro or the body of a call block (jinja2: macro_body).
func (c *compiler) macroBody(n node, args []*nameNode, defaults, body []node, f *frame) *macroCode {
	inner := f.inner()
	inner.fn = newFunction(f.fn)
	inner.buffered = true
	inner.symbols.analyze(n)
	m := &macroCode{fn: inner.fn}
	slotOf := func(id string) { m.slots = append(m.slots, inner.fn.slot(id)) }
	// A slot for each argument, in order.
	own := map[string]int{}
	for i, arg := range args {
		own[arg.name] = i + 1
		m.args = append(m.args, arg.name)
		slotOf(inner.symbols.ref(arg.name))
	}
	// The special names get one where the body uses them.
	m.hasCallerIn = own["caller"] > 0
	special := undeclared(body, "caller", "kwargs", "varargs")
	if special["caller"] {
		if at := own["caller"]; at > 0 && at <= len(args)-len(defaults) {
			c.fail(n, "the special \"caller\" argument must be omitted or be given a default")
		} else if at == 0 {
			slotOf(inner.symbols.declareParameter("caller"))
		}
		m.caller = true
	}
	if special["kwargs"] && own["kwargs"] == 0 {
		slotOf(inner.symbols.declareParameter("kwargs"))
		m.kwargs = true
	}
	if special["varargs"] && own["varargs"] == 0 {
		slotOf(inner.symbols.declareParameter("varargs"))
		m.varargs = true
	}
	// Again, now that those are parameters.
	inner.symbols.analyze(n)
	m.init = c.enter(inner)
	c.defaults(m, args, defaults, inner)
	m.body = c.statements(body, inner)
	return m
}

// defaults compiles the values of arguments that are not given. Those that come later count as
// undefined in them.
func (c *compiler) defaults(m *macroCode, args []*nameNode, defaults []node, f *frame) {
	open := f.symbols.parameters()
	c.params = append(c.params, open)
	m.defaults = make([]expr, len(args))
	for i, arg := range args {
		if at := i - (len(args) - len(defaults)); at >= 0 {
			m.defaults[i] = c.expr(defaults[at], f)
		}
		delete(open, f.symbols.ref(arg.name))
	}
	c.params = c.params[:len(c.params)-1]
}

func (c *compiler) macro(n *macroNode, f *frame) stmt {
	m := c.macroBody(n, n.args, n.defaults, n.body, f)
	m.name, m.hasName = n.name, true
	to := c.address(f.fn, c.ref(n, f, n.name))
	return func(r *run, a *act, _ *buffer) signal {
		r.alloc(64)
		v := &macroValue{m, a}
		to.set(a, v)
		if f.toplevel {
			a.ctx.vars[n.name] = v
		}
		return proceed
	}
}

func (c *compiler) callBlock(n *callBlockNode, f *frame) stmt {
	m := c.macroBody(n, n.args, n.defaults, n.body, f)
	if n.generation {
		return c.generation(m, f)
	}
	caller := f.fn.slot("caller of a call block")
	call := *n.call
	call.kwargs = append(append([]*keywordNode{}, n.call.kwargs...), &keywordNode{n.pos, "caller", &slotNode{n.pos, caller}})
	for _, k := range n.call.kwargs {
		if k.key == "caller" {
			c.fail(n, "keyword argument repeated: caller")
		}
	}
	value := c.expr(&call, f)
	return func(r *run, a *act, out *buffer) signal {
		a.slots[caller] = &macroValue{m, a}
		v := value(r, a)
		s, is := textOf(v)
		if !is {
			typeError("the result of a call block has the type %s; it must be text", typeName(v))
		}
		r.write(out, s)
		return proceed
	}
}

// generation runs a generation block: text as any other, and a span of it.
func (c *compiler) generation(m *macroCode, f *frame) stmt {
	return func(r *run, a *act, out *buffer) signal {
		from := len(out.b)
		text := r.callMacro(&macroValue{m, a}, arguments{})
		r.write(out, text)
		if f.buffered {
			r.lostSpans = true
		} else {
			r.spans = append(r.spans, [2]int{from, len(out.b)})
		}
		return proceed
	}
}

// callMacro is Macro.__call__: it shares the arguments out and renders the body.
func (r *run) callMacro(v *macroValue, given arguments) string {
	m := v.code
	// By position, then by name.
	values := append([]Value{}, given.pos[:min(len(given.pos), len(m.args))]...)
	found := len(values) == len(m.args) && m.hasCallerIn
	kwargs := given.kwargs()
	r.step(len(m.args) * len(kwargs) >> 2)
	take := func(name string) Value {
		for i := range kwargs {
			if kwargs[i].name == name {
				v := kwargs[i].value
				kwargs = append(kwargs[:i:i], kwargs[i+1:]...)
				return v
			}
		}
		return nil
	}
	for _, name := range m.args[len(values):] {
		found = found || name == "caller"
		values = append(values, take(name))
	}
	// The special ones take what is left; without them that is an error.
	if m.caller && !found {
		caller := take("caller")
		if _, none := caller.(None); caller == nil || none {
			caller = &Undefined{message: "No caller defined"}
		}
		values = append(values, caller)
	}
	if m.kwargs {
		values = append(values, r.kwargsDict(kwargs))
	} else if len(kwargs) > 0 {
		typeError("macro '%s' takes no keyword argument '%s'", m.name, kwargs[0].name)
	}
	if m.varargs {
		values = append(values, r.tuple(given.pos[min(len(given.pos), len(m.args)):]...))
	} else if len(given.pos) > len(m.args) {
		typeError("macro '%s' takes not more than %d argument(s)", m.name, len(m.args))
	}
	return r.runMacro(v, values)
}

func (r *run) runMacro(v *macroValue, values []Value) string {
	m := v.code
	r.enter()
	line := r.line
	a := m.fn.act(v.outer, v.outer.ctx)
	r.alloc(64 + 16*len(a.slots))
	if len(values) != len(m.slots) {
		unsupported("a macro whose argument caller is given twice")
	}
	for i, slot := range m.slots {
		a.slots[slot] = values[i]
	}
	r.enterFrame(a, m.init)
	// Arguments that were not given: defaults see those before them.
	for i, name := range m.args {
		if a.slots[m.slots[i]] != nil {
			continue
		}
		if d := m.defaults[i]; d != nil {
			a.slots[m.slots[i]] = d(r, a)
		} else {
			a.slots[m.slots[i]] = &Undefined{message: "parameter " + reprString(name) + " was not provided"}
		}
	}
	var out buffer
	runAll(r, a, &out, m.body)
	r.leave()
	r.line = line
	return r.take(&out)
}

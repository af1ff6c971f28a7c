package jinja

import "maps"

// expr evaluates an expression; stmt runs a statement.
type (
	expr func(r *run, a *act) Value
	stmt func(r *run, a *act, out *buffer) signal
)

// signal says how a statement ended.
type signal int

const (
	proceed signal = iota
	breaks
	continues
)

// function is what Jinja makes a Python function of: the template, a macro, a recursive loop, a
// loop's test, a block. Its slots are that function's locals.
type function struct {
	parent *function
	slots  map[string]int
	loops  int // loops around the statement that is being compiled
}

func newFunction(parent *function) *function {
	return &function{parent: parent, slots: map[string]int{}}
}

func (f *function) slot(id string) int {
	i, found := f.slots[id]
	if !found {
		i = len(f.slots)
		f.slots[id] = i
	}
	return i
}

// act is a call of a function under way. A slot without a value is nil.
type act struct {
	slots  []Value
	parent *act
	ctx    *context
}

// grown are the slots, as many as the function has.
func (f *function) act(parent *act, ctx *context) *act {
	return &act{slots: make([]Value, len(f.slots)), parent: parent, ctx: ctx}
}

// context holds the variables that names are looked up in when no frame assigns them.
type context struct {
	vars, parent map[string]Value
}

func (c *context) resolve(name string) Value {
	if v := c.vars[name]; v != nil {
		return v
	}
	return c.parent[name]
}

// frame is where a node is compiled (jinja2.compiler.Frame).
type frame struct {
	symbols  *symbols
	fn       *function
	toplevel bool
	loop     bool
	block    bool
	soft     bool // inside an if: unknown filters and tests fail when they are used
	buffered bool // what is written goes to a buffer first
}

func (f *frame) inner() *frame {
	return &frame{symbols: newSymbols(f.symbols), fn: f.fn, buffered: f.buffered}
}

func (f *frame) softened() *frame {
	copied := *f
	copied.soft = true
	return &copied
}

// compiler makes functions of nodes.
type compiler struct {
	line    *int
	blocks  map[string]*compiledBlock
	pending []*blockNode
	params  []map[string]bool // parameters that have no value yet, while defaults are compiled
	known   map[node]bool     // whether an expression is constant
}

type compiledBlock struct {
	fn   *function
	body []stmt
	init []entry
}

func (c *compiler) fail(n node, format string, args ...any) {
	panic(&Error{Class: "TemplateAssertionError", Message: sprintf(format, args...), Line: n.at()})
}

// address is where an identifier's value is: how many functions out, and which slot.
type address struct{ out, slot int }

func (c *compiler) address(fn *function, id string) address {
	for out, f := 0, fn; f != nil; out, f = out+1, f.parent {
		if slot, found := f.slots[id]; found {
			return address{out, slot}
		}
	}
	panic(&Error{Class: "Unsupported", Message: "a name whose value no frame has: " + id})
}

func (p address) get(a *act) Value {
	for range p.out {
		a = a.parent
	}
	return a.slots[p.slot]
}

func (p address) set(a *act, v Value) {
	for range p.out {
		a = a.parent
	}
	a.slots[p.slot] = v
}

// ref is the identifier of a name in a frame that must know it.
func (c *compiler) ref(n node, f *frame, name string) string {
	id := f.symbols.ref(name)
	if id == "" {
		c.fail(n, "tried to resolve the name %q, which is unknown to the frame", name)
	}
	return id
}

// entry gives a slot its value when a frame is entered.
type entry struct {
	slot    int
	action  int
	name    string
	outward address
}

// enter declares a frame's identifiers in its function and says what they begin as.
func (c *compiler) enter(f *frame) (list []entry) {
	for id := range f.symbols.loads {
		f.fn.slot(id)
	}
	for id, l := range f.symbols.loads {
		e := entry{slot: f.fn.slots[id], action: l.action, name: l.param}
		switch l.action {
		case loadParameter:
			continue
		case loadAlias:
			e.outward = c.address(f.fn, l.param)
		}
		list = append(list, e)
	}
	return list
}

func (r *run) enterFrame(a *act, list []entry) {
	r.step(len(list) >> 3)
	for _, e := range list {
		switch e.action {
		case loadResolve:
			a.slots[e.slot] = a.ctx.resolve(e.name)
		case loadAlias:
			a.slots[e.slot] = e.outward.get(a)
		default:
			a.slots[e.slot] = nil
		}
	}
}

// leave are the slots that lose their values when a frame is left.
func (c *compiler) leave(f *frame) (list []int) {
	for id := range f.symbols.loads {
		list = append(list, f.fn.slots[id])
	}
	return list
}

func leaveFrame(a *act, list []int) {
	for _, slot := range list {
		a.slots[slot] = nil
	}
}

// template compiles a complete template.
func (c *compiler) template(body []node) *compiledBlock {
	root := &outputNode{nodes: body}
	c.declareBlocks(root)
	if len(undeclared(body, "self")) > 0 {
		unsupported("the variable self, which stands for a template's blocks")
	}
	f := &frame{symbols: newSymbols(nil), fn: newFunction(nil), toplevel: true}
	f.symbols.visitAll(body)
	t := &compiledBlock{fn: f.fn, init: c.enter(f)}
	t.body = c.statements(body, f)
	for len(c.pending) > 0 {
		b := c.pending[0]
		c.pending = c.pending[1:]
		c.blockBody(b)
	}
	return t
}

func (c *compiler) declareBlocks(root node) {
	findAll(root, func(n node) bool {
		if b, is := n.(*blockNode); is {
			if c.blocks[b.name] != nil {
				c.fail(b, "block %q defined twice", b.name)
			}
			if found := undeclared(b.body, "self", "super"); len(found) > 0 {
				unsupported("the variables self and super in a block")
			}
			c.blocks[b.name] = &compiledBlock{}
			c.pending = append(c.pending, b)
		}
		return true
	})
}

func (c *compiler) blockBody(b *blockNode) {
	f := &frame{symbols: newSymbols(nil), fn: newFunction(nil), block: true, buffered: true}
	f.symbols.analyze(b)
	made := c.blocks[b.name]
	made.fn, made.init = f.fn, c.enter(f)
	made.body = c.statements(b.body, f)
}

func (c *compiler) statements(list []node, f *frame) []stmt {
	made := make([]stmt, 0, len(list))
	for _, n := range list {
		*c.line = n.at()
		made = append(made, c.statement(n, f))
	}
	return made
}

func runAll(r *run, a *act, out *buffer, list []stmt) signal {
	for _, s := range list {
		if sig := s(r, a, out); sig != proceed {
			return sig
		}
	}
	return proceed
}

// all are the variables of a context as one map.
func (c *context) all() map[string]Value {
	merged := maps.Clone(c.parent)
	maps.Copy(merged, c.vars)
	return merged
}

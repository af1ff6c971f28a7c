package jinja

import "time"

// Template is a template that can be rendered any number of times, by several goroutines at once.
type Template struct {
	root   *compiledBlock
	blocks map[string]*compiledBlock
}

// Parse reads a template. The error is an *Error.
func Parse(source string) (t *Template, err error) {
	line := 1
	defer recovered(&line, &err)
	nodes := parseNodes(lex(source, &line))
	c := &compiler{line: &line, blocks: map[string]*compiledBlock{}, known: map[node]bool{}}
	return &Template{root: c.template(nodes), blocks: c.blocks}, nil
}

// Options are what a render may take and what it sees.
type Options struct {
	Limits Limits    // zero: DefaultLimits
	Now    time.Time // the result of strftime_now
}

// Rendered is a template's text.
type Rendered struct {
	Text string
	// Spans are the bytes [from, to) of Text that generation blocks wrote, in their order.
	Spans [][2]int
	// LostSpans reports that a generation block wrote inside a macro, a filter, a set block or a
	// recursive loop, where its position in Text is not known.
	LostSpans bool
}

// run is a render under way.
type run struct {
	limits        Limits
	steps, memory int64
	depth         int
	line          int
	spans         [][2]int
	lostSpans     bool
}

// Render writes the template with variables, which it does not change. The error is an *Error.
func (t *Template) Render(variables *Dict, o Options) (out Rendered, err error) {
	if o.Limits == (Limits{}) {
		o.Limits = DefaultLimits
	}
	r := &run{limits: o.Limits}
	defer recovered(&r.line, &err)
	ctx := &context{vars: map[string]Value{}, parent: globalsOf(o.Now)}
	for i, k := range variables.keys {
		if name, is := k.(string); is {
			ctx.parent[name] = variables.values[i]
		}
	}
	a := t.root.fn.act(nil, ctx)
	r.enterFrame(a, t.root.init)
	text := buffer{most: o.Limits.Output}
	runAll(r, a, &text, t.root.body)
	return Rendered{Text: r.take(&text), Spans: r.spans, LostSpans: r.lostSpans}, nil
}

package chat

import (
	"fmt"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins"
	structures "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// environment is Jinja's with what transformers adds, and without what opens other files.
func environment() *exec.Environment {
	tags := map[string]parser.ControlStructureParser{"generation": guarded(generation)}
	for _, name := range []string{"if", "for", "set", "macro", "call", "filter", "with", "raw", "do", "break", "continue", "autoescape"} {
		if p, found := structures.All.Get(name); found {
			tags[name] = guarded(p)
		}
	}
	filters := exec.NewFilterSet(map[string]exec.FilterFunction{}).Update(builtins.Filters)
	filters.Replace("tojson", toJSON)
	names := exec.EmptyContext().Update(builtins.GlobalFunctions)
	names.Set("range", rangeOf)
	return &exec.Environment{Context: names, Filters: filters, Tests: builtins.Tests,
		ControlStructures: exec.NewControlStructureSet(tags), Methods: builtins.Methods}
}

// orderName is the variable under which a render's filters find the order of keys.
const orderName = "monotron order of keys"

// toJSON is transformers' filter: Python's json.dumps without escapes.
func toJSON(e *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	indent := -1
	if given, found := params.KwArgs["indent"]; found && given.IsInteger() {
		indent = given.Integer()
	}
	keys, _ := e.Environment.Context.Get(orderName)
	o, _ := keys.(order)
	var b strings.Builder
	if err := o.write(&b, in.Interface(), indent, 0); err != nil {
		return exec.AsValue(err)
	}
	return exec.AsSafeValue(b.String())
}

// generation marks what the model writes, for masks; in a text it is nothing.
func generation(p *parser.Parser, _ *parser.Parser) (nodes.ControlStructure, error) {
	g := &generationBlock{at: p.Current()}
	wrapper, _, err := p.WrapUntil("endgeneration")
	g.inside = wrapper
	return g, err
}

type generationBlock struct {
	at     *tokens.Token
	inside *nodes.Wrapper
}

func (g *generationBlock) Position() *tokens.Token { return g.at }
func (g *generationBlock) String() string          { return "generation" }

func (g *generationBlock) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	return r.Inherit().ExecuteWrapper(g.inside)
}

// strftime is Python's, for what templates ask of dates.
func strftime(now time.Time, format string) string {
	codes := map[byte]string{'Y': "2006", 'm': "01", 'd': "02", 'B': "January", 'b': "Jan", 'A': "Monday", 'a': "Mon", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'y': "06"}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		layout, known := codes[format[i]]
		switch {
		case format[i] == 'j':
			fmt.Fprintf(&b, "%03d", now.YearDay())
		case format[i] == '-' && i+1 < len(format):
			i++
			b.WriteString(strings.TrimLeft(now.Format(codes[format[i]]), "0"))
		case known:
			b.WriteString(now.Format(layout))
		default:
			b.WriteString("%" + format[i:i+1])
		}
	}
	return strings.ReplaceAll(b.String(), "%%", "%")
}

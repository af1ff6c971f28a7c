package chat

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"time"

	structures "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// A template comes with a model that somebody else has made, and its tags are a
// language: what one render may take has ends.
const (
	mostTime   = 5 * time.Second
	mostText   = 16 << 20
	mostMemory = 256 << 20
	mostFrames = 3_000   // of Go's stack: more than a hundred macros in each other
	mostRange  = 100_000 // numbers of a range, as in Jinja's sandbox
)

// limitsName is the variable under which a render's tags find its limits.
const limitsName = "monotron limits"

// limits of one render; err is the first that was reached.
type limits struct {
	until time.Time
	heap  uint64 // bytes in use before
	text  bytes.Buffer
	err   error
}

func newLimits() *limits { return &limits{until: time.Now().Add(mostTime), heap: heapBytes()} }

func heapBytes() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// check is called before every tag and at the start of what may run again by itself.
func (l *limits) check() error {
	var frame [1]uintptr
	switch {
	case l.err != nil:
	case runtime.Callers(mostFrames, frame[:]) > 0:
		l.err = errors.New("the chat template calls itself without end")
	case heapBytes() > l.heap+mostMemory:
		l.err = fmt.Errorf("the chat template takes more than %d MiB of memory", mostMemory>>20)
	case time.Now().After(l.until):
		l.err = fmt.Errorf("the chat template is not done after %v", mostTime)
	}
	return l.err
}

// Write takes what the template writes.
func (l *limits) Write(p []byte) (int, error) {
	if l.text.Len()+len(p) > mostText && l.err == nil {
		l.err = fmt.Errorf("the chat template writes more than %d MiB", mostText>>20)
	}
	if l.err != nil {
		return 0, l.err
	}
	return l.text.Write(p)
}

// guarded are tags of p that look at the limits first.
func guarded(p parser.ControlStructureParser) parser.ControlStructureParser {
	return func(doc, args *parser.Parser) (nodes.ControlStructure, error) {
		inner, err := p(doc, args)
		if err != nil {
			return inner, err
		}
		switch s := inner.(type) {
		case *structures.ForControlStructure:
			watch(s.BodyWrapper)
		case *structures.MacroControlStructure:
			watch(s.Wrapper)
		}
		if e, is := inner.(exec.ControlStructure); is {
			return guard{e}, nil
		}
		return inner, nil
	}
}

// watch puts a look at the limits in front of a body: a loop and a macro run it again
// without a tag between.
func watch(body *nodes.Wrapper) {
	tick := &nodes.ControlStructureBlock{Location: body.Location, Name: "limits", ControlStructure: guard{nothing{body.Location}}}
	body.Nodes = append([]nodes.Node{tick}, body.Nodes...)
}

type guard struct{ exec.ControlStructure }

func (g guard) Execute(r *exec.Renderer, tag *nodes.ControlStructureBlock) error {
	if v, _ := r.Environment.Context.Get(limitsName); v != nil {
		if l, is := v.(*limits); is {
			if err := l.check(); err != nil {
				return err
			}
		}
	}
	return g.ControlStructure.Execute(r, tag)
}

type nothing struct{ at *tokens.Token }

func (n nothing) Position() *tokens.Token                                    { return n.at }
func (n nothing) String() string                                             { return "limits" }
func (n nothing) Execute(*exec.Renderer, *nodes.ControlStructureBlock) error { return nil }

// rangeOf is Python's range, of as many numbers as Jinja's sandbox lets through.
func rangeOf(_ *exec.Evaluator, params *exec.VarArgs) ([]int, error) {
	var n []int
	for _, a := range params.Args {
		if !a.IsInteger() {
			return nil, exec.ErrInvalidCall(errors.New("range takes whole numbers"))
		}
		n = append(n, a.Integer())
	}
	start, stop, step := 0, 0, 1
	switch len(n) {
	case 1:
		stop = n[0]
	case 2:
		start, stop = n[0], n[1]
	case 3:
		start, stop, step = n[0], n[1], n[2]
	default:
		return nil, exec.ErrInvalidCall(errors.New("range takes one to three numbers"))
	}
	if step == 0 {
		return nil, exec.ErrInvalidCall(errors.New("the step of a range cannot be 0"))
	}
	list := []int{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(list) == mostRange {
			return nil, exec.ErrInvalidCall(fmt.Errorf("range has more than %d numbers", mostRange))
		}
		list = append(list, i)
	}
	return list, nil
}

package schema

import (
	"encoding/json"
	"fmt"
)

// Calls is how a text holds calls of tools: Begin, a call, for each further one Again and a call, End.
type Calls struct {
	Begin, Again, End string
	Tools             []Tool
	Optional          bool // the text may have no calls, and other text before them
	Opening           byte // with an empty Begin and Optional: the byte that a text of calls begins with
	One               bool // no second call
}

// Tool is a call's text around its arguments, and their schema.
type Tool struct {
	Open, Close string
	Arguments   json.RawMessage
}

// CompileCalls gives the grammar of texts with calls whose arguments are of their tool's schema.
func CompileCalls(c Calls) (*Grammar, error) {
	var call choice
	for i, tool := range c.Tools {
		arguments, err := Compile(tool.Arguments)
		if err != nil {
			return nil, fmt.Errorf("tool %d: %w", i, err)
		}
		call = append(call, sequence{literal(tool.Open), arguments.root, literal(tool.Close)})
	}
	all := sequence{call}
	if !c.One {
		all = append(all, many{sequence{literal(c.Again), call}, 0, -1})
	}
	all = append(all, literal(c.End))
	switch {
	case !c.Optional:
		return &Grammar{append(sequence{literal(c.Begin)}, all...)}, nil
	case c.Begin == "":
		other := new(set).add(0, 255)
		other[c.Opening>>6] &^= 1 << (c.Opening & 63)
		other[' '>>6] &^= 1<<(' '&63) | 1<<('\n'&63) | 1<<('\t'&63) | 1<<('\r'&63)
		return &Grammar{choice{all, many{sequence{other, many{new(set).add(0, 255), 0, -1}}, 0, 1}}}, nil
	}
	return &Grammar{&until{mark: c.Begin, after: all}}, nil
}

// until is any text, which ends or holds a mark, and then what follows the mark. It is the
// last node of a grammar.
type until struct {
	mark  string
	after node
}

func (u *until) expand(_, next *stack) []*stack {
	states := make([]*stack, len(u.mark))
	for i := range states {
		states[i] = push(partOf{u, i, states}, next)
	}
	return reach(states[0])
}

// partOf is a text that ends with the first `have` bytes of the mark, one of len(mark) states.
type partOf struct {
	*until
	have   int
	states []*stack
}

// expand follows each byte to the longest beginning of the mark that the text then ends with.
func (p partOf) expand(_, next *stack) []*stack {
	goes := make([]*set, len(p.mark)+1)
	for b := range 256 {
		to := p.longest(p.mark[:p.have] + string([]byte{byte(b)}))
		if goes[to] == nil {
			goes[to] = new(set)
		}
		goes[to].add(byte(b), byte(b))
	}
	all := reach(next)
	for to, bytes := range goes {
		switch {
		case bytes == nil:
		case to == len(p.mark):
			all = append(all, push(bytes, push(p.after, next)))
		default:
			all = append(all, push(bytes, p.states[to]))
		}
	}
	return all
}

// longest is how much of the mark's beginning a text ends with.
func (u *until) longest(text string) int {
	n := min(len(text), len(u.mark))
	for text[len(text)-n:] != u.mark[:n] {
		n--
	}
	return n
}

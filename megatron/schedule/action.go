package schedule

import (
	"fmt"
	"strings"
)

// Kind of an action.
type Kind int8

const (
	Forward Kind = iota
	Backward
	Exchange
)

func (k Kind) String() string { return [...]string{"F", "B", "X"}[k] }

// Action is one thing a stage does: a chunk's forward or backward of one
// micro-batch, or an exchange of values with other stages.
type Action struct {
	Kind         Kind
	Chunk, Micro int        // of Forward and Backward
	Transfers    []Transfer // of Exchange, made as one: none waits for another
	// Overlap: an Exchange, all activations or all gradients, that need not end
	// before what follows. It ends before a value it brings is used and before the
	// next exchange of its sort begins.
	Overlap bool
}

// Transfer is one value on its way between two stages.
type Transfer struct {
	Send         bool // else receive
	Grad         bool // a gradient of a chunk's input, else a chunk's output
	Peer         int  // the other stage
	Chunk, Micro int  // on this stage: what made the value sent or will use the one received
}

func (a Action) String() string {
	switch a.Kind {
	case Forward, Backward:
		return fmt.Sprintf("%v%d.%d", a.Kind, a.Chunk, a.Micro)
	}
	parts := make([]string, len(a.Transfers))
	for i, t := range a.Transfers {
		parts[i] = t.String()
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func (t Transfer) String() string {
	value, way := "activation", "receive %s of chunk %d, micro-batch %d from stage %d"
	if t.Grad {
		value = "gradient"
	}
	if t.Send {
		way = "send %s of chunk %d, micro-batch %d to stage %d"
	}
	return fmt.Sprintf(way, value, t.Chunk, t.Micro, t.Peer)
}

// Order writes a list's forwards and backwards down as Megatron's people do:
// F0 F1 B0, or F<chunk>.<micro-batch> with several chunks.
func Order(acts []Action, chunks int) string {
	var words []string
	for _, a := range acts {
		if a.Kind == Exchange {
			continue
		}
		word := a.String()
		if chunks == 1 {
			word = strings.Replace(word, "0.", "", 1)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func forward(chunk, micro int) Action  { return Action{Kind: Forward, Chunk: chunk, Micro: micro} }
func backward(chunk, micro int) Action { return Action{Kind: Backward, Chunk: chunk, Micro: micro} }

// list is a stage's actions being written, their transfers side by side.
type list struct {
	acts    []Action
	buffers []Transfer
	from    int // in buffers: of the exchange that is being written
}

func (l *list) forward(chunk, micro int)  { l.acts = append(l.acts, forward(chunk, micro)) }
func (l *list) backward(chunk, micro int) { l.acts = append(l.acts, backward(chunk, micro)) }

// with adds a transfer to the exchange that is being written.
func (l *list) with(t Transfer) { l.buffers = append(l.buffers, t) }

// exchange ends it; without transfers it is nothing.
func (l *list) exchange() {
	if n := len(l.buffers); n > l.from {
		l.acts = append(l.acts, Action{Kind: Exchange, Transfers: l.buffers[l.from:n:n]})
		l.from = n
	}
}

// batch is an exchange of transfers outside buffers.
func (l *list) batch(overlap bool, transfers []Transfer) {
	if len(transfers) > 0 {
		l.acts = append(l.acts, Action{Kind: Exchange, Transfers: transfers, Overlap: overlap})
	}
}

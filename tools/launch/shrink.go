package launch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// resume has the command load what it has saved, where it does not say so itself.
func (o *options) resume() {
	if o.saves != "" && !o.has("load") {
		o.words = append(slices.Clone(o.words), "--load", o.saves)
	}
}

// shrink takes as many copies of the model away as it must for the next smaller
// number of ranks of this host that the layout allows; false: there is none.
func (o *options) shrink() bool {
	if o.least == 0 {
		return false
	}
	for ranks := o.local - 1; ranks >= o.least; ranks-- {
		if o.layout().holds(ranks) {
			o.local = ranks
			o.resume()
			return true
		}
	}
	return false
}

// hostsFor is the largest number of hosts, up to the given one, on which the layout
// can be; 0: there is none, or it is smaller than --min-nnodes.
func (o *options) hostsFor(hosts int) int {
	for ; hosts >= max(1, o.leastNodes); hosts-- {
		if o.layout().holds(hosts * o.local) {
			return hosts
		}
	}
	return 0
}

// layout is what the number of ranks depends on.
type layout struct {
	tp, pp, cp   int
	batch, micro int // samples of a step; 0: not said
}

func (o *options) layout() layout {
	return layout{o.number("tensor-model-parallel-size", 1), o.number("pipeline-model-parallel-size", 1), o.number("context-parallel-size", 1),
		o.number("global-batch-size", 0), o.number("micro-batch-size", 1)}
}

// holds tells whether whole copies of the model fill so many ranks, and the batch
// divides among them.
func (l layout) holds(ranks int) bool {
	whole := l.tp * l.pp * l.cp
	return ranks >= whole && ranks%whole == 0 && l.batch%(l.micro*(ranks/whole)) == 0
}

func (l layout) String() string {
	text := fmt.Sprintf("tensor %d x pipeline %d x context %d", l.tp, l.pp, l.cp)
	if l.batch > 0 {
		text += fmt.Sprintf(", batch %d in parts of %d", l.batch, l.micro)
	}
	return text
}

// value is that of a flag of the command to start, the last one's where it is given
// twice; found tells whether it is there.
func (o *options) value(flag string) (value string, found bool) {
	for i, word := range o.words {
		name, given, joined := strings.Cut(word, "=")
		if !strings.HasPrefix(name, "--") || strings.ReplaceAll(name[2:], "_", "-") != flag {
			continue
		}
		if !joined && i+1 < len(o.words) {
			given = o.words[i+1]
		}
		value, found = given, true
	}
	return value, found
}

func (o *options) has(flag string) bool {
	_, found := o.value(flag)
	return found
}

// number is the value of a flag that is a positive number.
func (o *options) number(flag string, otherwise int) int {
	value, _ := o.value(flag)
	if n, err := strconv.Atoi(value); err == nil && n > 0 {
		return n
	}
	return otherwise
}

package launch

import (
	"slices"
	"strconv"
	"strings"
)

// resume has the command load what it has saved, where it does not say so itself.
func (o *options) resume() {
	if o.saves != "" && !slices.Contains(o.words, "--load") {
		o.words = append(slices.Clone(o.words), "--load", o.saves)
	}
}

// shrink takes as many copies of the model away as it must for the next smaller
// number of ranks that the batch divides among; false: there is none.
func (o *options) shrink() bool {
	if o.least == 0 {
		return false
	}
	whole := o.number("tensor-model-parallel-size", 1) * o.number("pipeline-model-parallel-size", 1) * o.number("context-parallel-size", 1)
	batch, micro := o.number("global-batch-size", 0), o.number("micro-batch-size", 1)
	for ranks := o.local - 1; ranks >= o.least; ranks-- {
		if ranks%whole == 0 && batch%(micro*(ranks/whole)) == 0 {
			o.local = ranks
			o.resume()
			return true
		}
	}
	return false
}

// number is the value of a flag of the command to start.
func (o *options) number(flag string, otherwise int) int {
	for i, word := range o.words {
		name, value, joined := strings.Cut(strings.ReplaceAll(strings.TrimLeft(word, "-"), "_", "-"), "=")
		if name != flag || !strings.HasPrefix(word, "--") {
			continue
		}
		if !joined && i+1 < len(o.words) {
			value = o.words[i+1]
		}
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			return n
		}
	}
	return otherwise
}

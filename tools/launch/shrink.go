package launch

import "fmt"

// shrink takes as many copies of the model away as it must for the next smaller
// number of ranks of this host that the layout allows; false: there is none.
func (o *options) shrink() bool {
	if o.least == 0 {
		return false
	}
	for ranks := o.local - 1; ranks >= o.least; ranks-- {
		if o.layout().holds(ranks) {
			o.local, o.fewer = ranks, true
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
	tp, pp, cp, ep, etp int
	batch, micro        int // samples of a step; 0: not said
}

func (o *options) layout() layout {
	c, given := o.line.config, o.line.given
	l := layout{max(1, c.Layout.TP), max(1, c.Layout.PP), max(1, c.Layout.CP), max(1, c.Layout.EP), max(1, c.Layout.ETP), 0, max(1, c.MicroBatchSize)}
	if given("global-batch-size") {
		l.batch = c.GlobalBatchSize
	}
	return l
}

// holds reports whether complete copies of the model fill so many ranks, and the batch
// divides among them.
func (l layout) holds(ranks int) bool {
	copies := l.tp * l.pp * l.cp
	experts := l.pp * l.ep * l.etp
	return ranks >= copies && ranks%copies == 0 && (l.ep == 1 || ranks%experts == 0) && l.batch%(l.micro*(ranks/copies)) == 0
}

func (l layout) String() string {
	text := fmt.Sprintf("tensor %d x pipeline %d x context %d", l.tp, l.pp, l.cp)
	if l.batch > 0 {
		text += fmt.Sprintf(", batch %d in parts of %d", l.batch, l.micro)
	}
	return text
}

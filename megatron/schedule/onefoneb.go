package schedule

// OneFOneB is the schedule of Narayanan et al. (arXiv 2104.04473, section
// 2.2.1): enough forwards to fill the pipeline behind this stage, then one forward
// and one backward in turn, then the backwards that are left. At most
// stages-stage micro-batches are alive. With one stage it is F0 B0 F1 B1 ..
func OneFOneB(stage, stages, micros int) []Action {
	warmup := min(stages-stage-1, micros)
	return straight{stage, stages}.list(warmup, micros, false)
}

// GPipe is the schedule of Huang et al. (arXiv 1811.06965): all forwards, then
// all backwards; all micro-batches are alive at once. Backwards go in the order of
// forwards, so that gradients are summed as in the other schedules.
func GPipe(stage, stages, micros int) []Action {
	return straight{stage, stages}.list(micros, micros, false)
}

// ForwardOnly is a pipeline that evaluates: nothing is kept, nothing flows back.
func ForwardOnly(stage, stages, micros int) []Action {
	return straight{stage, stages}.list(micros, micros, true)
}

// straight is a stage of a pipeline with one chunk a stage.
type straight struct{ stage, stages int }

// list is warmup forwards, then a forward and a backward in turn, then backwards,
// with Megatron's exchanges: in turn, a send always goes along with a receive of
// the opposite direction, for the neighbour is at the opposite half of its turn.
func (p straight) list(warmup, micros int, forwardOnly bool) []Action {
	l := &list{acts: make([]Action, 0, 4*micros+2), buffers: make([]Transfer, 0, 4*micros)}
	// Warmup: a forward for each stage that follows.
	for m := range warmup {
		p.takes(l, m)
		l.exchange()
		l.forward(0, m)
		p.gives(l, m)
		l.exchange()
	}
	if forwardOnly {
		return l.acts
	}
	// In turn: a forward and the backward of the oldest micro-batch under way.
	if warmup < micros {
		p.takes(l, warmup)
		l.exchange()
	}
	for m := warmup; m < micros; m++ {
		back := m - warmup
		l.forward(0, m)
		p.gives(l, m)
		p.takesBack(l, back)
		l.exchange()
		l.backward(0, back)
		if m+1 < micros {
			p.takes(l, m+1)
		}
		p.givesBack(l, back)
		l.exchange()
	}
	// The backwards that are left.
	for m := micros - warmup; m < micros; m++ {
		p.takesBack(l, m)
		l.exchange()
		l.backward(0, m)
		p.givesBack(l, m)
		l.exchange()
	}
	return l.acts
}

// takes and gives add this stage's transfers of one micro-batch; none at an end
// of the pipeline.
func (p straight) takes(l *list, micro int) {
	if p.stage > 0 {
		l.with(Transfer{Peer: p.stage - 1, Micro: micro})
	}
}

func (p straight) gives(l *list, micro int) {
	if p.stage < p.stages-1 {
		l.with(Transfer{Send: true, Peer: p.stage + 1, Micro: micro})
	}
}

func (p straight) takesBack(l *list, micro int) {
	if p.stage < p.stages-1 {
		l.with(Transfer{Grad: true, Peer: p.stage + 1, Micro: micro})
	}
}

func (p straight) givesBack(l *list, micro int) {
	if p.stage > 0 {
		l.with(Transfer{Send: true, Grad: true, Peer: p.stage - 1, Micro: micro})
	}
}

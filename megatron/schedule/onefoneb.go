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
func (p straight) list(warmup, micros int, forwardOnly bool) (acts []Action) {
	for m := range warmup {
		acts = exchange(acts, false, p.takes(m)...)
		acts = append(acts, forward(0, m))
		acts = exchange(acts, false, p.gives(m)...)
	}
	if forwardOnly {
		return acts
	}
	if warmup < micros {
		acts = exchange(acts, false, p.takes(warmup)...)
	}
	for m := warmup; m < micros; m++ {
		back := m - warmup
		acts = append(acts, forward(0, m))
		acts = exchange(acts, false, append(p.gives(m), p.takesBack(back)...)...)
		acts = append(acts, backward(0, back))
		next := p.givesBack(back)
		if m+1 < micros {
			next = append(p.takes(m+1), next...)
		}
		acts = exchange(acts, false, next...)
	}
	for m := micros - warmup; m < micros; m++ {
		acts = exchange(acts, false, p.takesBack(m)...)
		acts = append(acts, backward(0, m))
		acts = exchange(acts, false, p.givesBack(m)...)
	}
	return acts
}

// takes and gives are this stage's transfers of one micro-batch; none at an end
// of the pipeline.
func (p straight) takes(micro int) []Transfer {
	if p.stage == 0 {
		return nil
	}
	return []Transfer{{Peer: p.stage - 1, Micro: micro}}
}

func (p straight) gives(micro int) []Transfer {
	if p.stage == p.stages-1 {
		return nil
	}
	return []Transfer{{Send: true, Peer: p.stage + 1, Micro: micro}}
}

func (p straight) takesBack(micro int) []Transfer {
	if p.stage == p.stages-1 {
		return nil
	}
	return []Transfer{{Grad: true, Peer: p.stage + 1, Micro: micro}}
}

func (p straight) givesBack(micro int) []Transfer {
	if p.stage == 0 {
		return nil
	}
	return []Transfer{{Send: true, Grad: true, Peer: p.stage - 1, Micro: micro}}
}

package schedule

// Interleaved is 1F1B over several chunks a stage (arXiv 2104.04473, section
// 2.2.2) in Megatron's order: a chunk takes group micro-batches in a row, then the
// next chunk takes them; the last group may be smaller. Before one forward and one
// backward take turns, stage s runs 2(stages-s-1) + (chunks-1)group forwards.
//
// overlap is Megatron's default: each forward and each backward is followed by
// its own exchange, which goes on under the next computation. Without it one
// exchange follows a forward and a backward.
func Interleaved(stage, stages, chunks, micros, group int, overlap bool) []Action {
	warmup := min(2*(stages-stage-1)+(chunks-1)*group, chunks*micros)
	return newLanes(stage, stages, chunks, micros, group).list(warmup, overlap)
}

// InterleavedForwardOnly is an interleaved pipeline that evaluates.
func InterleavedForwardOnly(stage, stages, chunks, micros, group int) []Action {
	l := newLanes(stage, stages, chunks, micros, group)
	acts := l.appendExchanges(nil, l.forward.lead, false)
	for _, s := range l.forward.steps {
		acts = append(acts, forward(s.chunk, s.micro))
		acts = l.appendExchanges(acts, s.after, false)
	}
	return acts
}

// interleavedGPipe is all forwards, then all backwards, over several chunks.
func interleavedGPipe(stage, stages, chunks, micros, group int) []Action {
	return newLanes(stage, stages, chunks, micros, group).list(chunks*micros, false)
}

// entry is one run of a chunk.
type entry struct{ chunk, micro int }

// table is the order in which every stage runs its forwards. Backwards follow the
// same table with the chunks counted from the end.
func table(chunks, micros, group int) (t []entry) {
	for first := 0; first < micros; first += group {
		for chunk := range chunks {
			for micro := first; micro < min(first+group, micros); micro++ {
				t = append(t, entry{chunk, micro})
			}
		}
	}
	return t
}

// ticks are the times at which the first stage runs the table's entries, if each
// takes one tick and stage s follows s ticks behind. A value is back from the last
// stage after `stages` ticks; the first stage waits for it where a group is smaller.
func ticks(t []entry, stages int) []int {
	at := make([]int, len(t))
	started := map[entry]int{}
	for k, e := range t {
		if k > 0 {
			at[k] = at[k-1] + 1
		}
		if before, ok := started[entry{e.chunk - 1, e.micro}]; ok {
			at[k] = max(at[k], before+stages)
		}
		started[e] = at[k]
	}
	return at
}

// lane is one direction of a stage: what it runs, and what it exchanges after
// each run. All stages step through their lanes in ticks: whatever a stage sends
// in a tick, its neighbour receives in the same one, so that no stage waits for
// one that is further on.
type lane struct {
	lead  [][]Transfer // before the first run
	steps []step
}

type step struct {
	entry
	after [][]Transfer // one a tick; more than one only where this stage waits
}

type lanes struct{ forward, backward lane }

func newLanes(stage, stages, chunks, micros, group int) lanes {
	t := table(chunks, micros, group)
	at := ticks(t, stages)
	var l lanes
	l.forward = newLane(t, at, stage, stages, chunks)
	// The backward lane is a forward lane seen from the other end.
	l.backward = newLane(t, at, stages-1-stage, stages, chunks)
	l.backward.mirror(stages, chunks)
	return l
}

// newLane is the lane of the stage at a place of the line, in the forward direction.
func newLane(t []entry, at []int, place, stages, chunks int) (l lane) {
	runs := map[int]entry{} // tick on the first stage -> what it runs
	for k, e := range t {
		runs[at[k]] = e
	}
	before, after := (place+stages-1)%stages, (place+1)%stages
	last := at[len(at)-1] + stages - 1
	for tick := range last + 1 {
		var transfers []Transfer
		own, runsNow := runs[tick-place]
		if runsNow && !(place == stages-1 && own.chunk == chunks-1) {
			transfers = append(transfers, Transfer{Send: true, Peer: after, Chunk: own.chunk, Micro: own.micro})
		}
		if e, ok := runs[tick-before]; ok && !(before == stages-1 && e.chunk == chunks-1) {
			if place == 0 {
				e.chunk++
			}
			transfers = append(transfers, Transfer{Peer: before, Chunk: e.chunk, Micro: e.micro})
		}
		l.add(own, runsNow, transfers)
	}
	return l
}

// add appends a tick.
func (l *lane) add(run entry, runs bool, transfers []Transfer) {
	if runs {
		l.steps = append(l.steps, step{entry: run})
	}
	if len(transfers) == 0 {
		return
	}
	to := &l.lead
	if len(l.steps) > 0 {
		to = &l.steps[len(l.steps)-1].after
	}
	*to = append(*to, transfers)
}

// mirror turns a lane around: stages and chunks counted from the end, gradients
// in place of activations.
func (l *lane) mirror(stages, chunks int) {
	flip := func(batches [][]Transfer) {
		for _, batch := range batches {
			for i := range batch {
				t := &batch[i]
				t.Peer, t.Chunk, t.Grad = stages-1-t.Peer, chunks-1-t.Chunk, true
			}
		}
	}
	flip(l.lead)
	for i := range l.steps {
		s := &l.steps[i]
		s.chunk = chunks - 1 - s.chunk
		flip(s.after)
	}
}

// list joins the lanes: warmup forwards, a forward and a backward in turn,
// backwards. The first gradient is received before the turns begin: the stage
// behind offers it in that tick.
func (l lanes) list(warmup int, overlap bool) (acts []Action) {
	f, b := l.forward, l.backward
	turns := len(f.steps) - warmup
	acts = l.appendExchanges(acts, f.lead, false)
	for i, s := range f.steps[:warmup] {
		acts = append(acts, forward(s.chunk, s.micro))
		if !overlap && turns > 0 && i == warmup-1 {
			acts = exchange(acts, false, join(s.after, b.lead)...)
			b.lead = nil
			continue
		}
		acts = l.appendExchanges(acts, s.after, false)
	}
	acts = l.appendExchanges(acts, b.lead, overlap && turns > 0)
	for i := range turns {
		s, back := f.steps[warmup+i], b.steps[i]
		acts = append(acts, forward(s.chunk, s.micro))
		if overlap {
			acts = l.appendExchanges(acts, s.after, true)
			acts = append(acts, backward(back.chunk, back.micro))
			acts = l.appendExchanges(acts, back.after, true)
			continue
		}
		acts = append(acts, backward(back.chunk, back.micro))
		acts = exchange(acts, false, join(s.after, back.after)...)
	}
	for _, back := range b.steps[turns:] {
		acts = append(acts, backward(back.chunk, back.micro))
		acts = l.appendExchanges(acts, back.after, false)
	}
	return acts
}

func (lanes) appendExchanges(acts []Action, batches [][]Transfer, overlap bool) []Action {
	for _, batch := range batches {
		acts = exchange(acts, overlap, batch...)
	}
	return acts
}

// join makes one batch: activations, then gradients, so that both ends of a pair
// of stages list them alike.
func join(forward, backward [][]Transfer) (batch []Transfer) {
	for _, more := range append(forward[:len(forward):len(forward)], backward...) {
		batch = append(batch, more...)
	}
	return batch
}

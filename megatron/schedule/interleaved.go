package schedule

// Interleaved is 1F1B over several chunks a stage (arXiv 2104.04473, section
// 2.2.2) in Megatron's order: a chunk takes group micro-batches in a row, then the
// next chunk takes them; the last group may be smaller. Before one forward and one
// backward take turns, stage s runs 2(stages-s-1) + (chunks-1)group forwards.
//
// overlap is Megatron's default: each forward and each backward is followed by
// its own exchange, which continues under the next computation. Without it one
// exchange follows a forward and a backward.
func Interleaved(stage, stages, chunks, micros, group int, overlap bool) []Action {
	warmup := min(2*(stages-stage-1)+(chunks-1)*group, chunks*micros)
	return newLanes(stage, stages, chunks, micros, group).list(warmup, overlap)
}

// InterleavedForwardOnly is an interleaved pipeline that evaluates.
func InterleavedForwardOnly(stage, stages, chunks, micros, group int) []Action {
	f, acts := newLanes(stage, stages, chunks, micros, group).forward, &list{}
	acts.exchanges(f.after(-1), false)
	for i, run := range f.runs {
		acts.forward(run.chunk, run.micro)
		acts.exchanges(f.after(i), false)
	}
	return acts.acts
}

// interleavedGPipe is all forwards, then all backwards, over several chunks.
func interleavedGPipe(stage, stages, chunks, micros, group int) []Action {
	return newLanes(stage, stages, chunks, micros, group).list(chunks*micros, false)
}

// entry is one run of a chunk.
type entry struct{ chunk, micro int }

// table is the order in which every stage runs its forwards. Backwards follow the
// same table with the chunks counted from the end.
func table(chunks, micros, group int) []entry {
	t := make([]entry, 0, chunks*micros)
	for first := 0; first < micros; first += group {
		for chunk := range chunks {
			for micro := first; micro < min(first+group, micros); micro++ {
				t = append(t, entry{chunk, micro})
			}
		}
	}
	return t
}

// nothing is what a stage runs in a tick in which it waits.
var nothing = entry{-1, -1}

// ticks are the table's entries at the times at which the first stage runs them, if each
// takes one tick and stage s follows s ticks behind. A value is back from the last
// stage after `stages` ticks; the first stage waits for it where a group is smaller.
func ticks(t []entry, stages, micros int) []entry {
	at := make([]entry, 0, len(t))
	started := make([]int, len(t)) // by chunk and micro-batch
	for _, e := range t {
		if e.chunk > 0 {
			for len(at) < started[(e.chunk-1)*micros+e.micro]+stages {
				at = append(at, nothing)
			}
		}
		started[e.chunk*micros+e.micro] = len(at)
		at = append(at, e)
	}
	return at
}

// lane is one direction of a stage: what it runs, and what it exchanges after
// each run. All stages step through their lanes in ticks: whatever a stage sends
// in a tick, its neighbour receives in the same one, so that no stage waits for
// one that is further on.
type lane struct {
	runs    []entry
	batches [][]Transfer // one a tick
	ends    []int        // of the batches before the first run, then of those after each: more than one only where this stage waits
}

// after are the batches that follow a run; -1: those before the first.
func (l *lane) after(run int) [][]Transfer {
	from := 0
	if run >= 0 {
		from = l.ends[run]
	}
	return l.batches[from:l.ends[run+1]]
}

type lanes struct{ forward, backward lane }

func newLanes(stage, stages, chunks, micros, group int) lanes {
	at := ticks(table(chunks, micros, group), stages, micros)
	var l lanes
	l.forward = newLane(at, stage, stages, chunks)
	// The backward lane is a forward lane seen from the other end.
	l.backward = newLane(at, stages-1-stage, stages, chunks)
	l.backward.mirror(stages, chunks)
	return l
}

// newLane is the lane of the stage at a position of the line, in the forward direction.
func newLane(at []entry, position, stages, chunks int) lane {
	runs := func(tick int) entry {
		if tick < 0 || tick >= len(at) {
			return nothing
		}
		return at[tick]
	}
	before, after := (position+stages-1)%stages, (position+1)%stages
	l := lane{runs: make([]entry, 0, len(at)), batches: make([][]Transfer, 0, len(at)+1), ends: make([]int, 1, len(at)+1)}
	buffers := make([]Transfer, 0, 2*len(at)+2)
	for tick := range len(at) + stages - 1 {
		from, own := len(buffers), runs(tick-position)
		if own != nothing && !(position == stages-1 && own.chunk == chunks-1) {
			buffers = append(buffers, Transfer{Send: true, Peer: after, Chunk: own.chunk, Micro: own.micro})
		}
		if e := runs(tick - before); e != nothing && !(before == stages-1 && e.chunk == chunks-1) {
			if position == 0 {
				e.chunk++
			}
			buffers = append(buffers, Transfer{Peer: before, Chunk: e.chunk, Micro: e.micro})
		}
		l.add(own, buffers[from:len(buffers):len(buffers)])
	}
	return l
}

// add appends a tick.
func (l *lane) add(run entry, transfers []Transfer) {
	if run != nothing {
		l.runs, l.ends = append(l.runs, run), append(l.ends, len(l.batches))
	}
	if len(transfers) > 0 {
		l.batches = append(l.batches, transfers)
		l.ends[len(l.ends)-1]++
	}
}

// mirror turns a lane around: stages and chunks counted from the end, gradients
// in place of activations.
func (l *lane) mirror(stages, chunks int) {
	for _, batch := range l.batches {
		for i := range batch {
			t := &batch[i]
			t.Peer, t.Chunk, t.Grad = stages-1-t.Peer, chunks-1-t.Chunk, true
		}
	}
	for i := range l.runs {
		l.runs[i].chunk = chunks - 1 - l.runs[i].chunk
	}
}

// list joins the lanes: warmup forwards, a forward and a backward in turn,
// backwards. The first gradient is received before the turns begin: the stage
// behind offers it in that tick.
func (l lanes) list(warmup int, overlap bool) []Action {
	f, b := &l.forward, &l.backward
	acts := &list{acts: make([]Action, 0, len(f.runs)+len(b.runs)+len(f.batches)+len(b.batches))}
	turns, lead := len(f.runs)-warmup, b.after(-1)
	// Warmup: forwards alone. The last one's exchange has the first gradient with it.
	acts.exchanges(f.after(-1), false)
	for i, run := range f.runs[:warmup] {
		acts.forward(run.chunk, run.micro)
		if !overlap && turns > 0 && i == warmup-1 {
			acts.batch(false, join(f.after(i), lead))
			lead = nil
			continue
		}
		acts.exchanges(f.after(i), false)
	}
	acts.exchanges(lead, overlap && turns > 0)
	// In turn. With overlap each exchange runs during the next computation, else both directions run together.
	for i := range turns {
		run, back := f.runs[warmup+i], b.runs[i]
		acts.forward(run.chunk, run.micro)
		if overlap {
			acts.exchanges(f.after(warmup+i), true)
			acts.backward(back.chunk, back.micro)
			acts.exchanges(b.after(i), true)
			continue
		}
		acts.backward(back.chunk, back.micro)
		acts.batch(false, join(f.after(warmup+i), b.after(i)))
	}
	// The backwards that are left.
	for i := turns; i < len(b.runs); i++ {
		acts.backward(b.runs[i].chunk, b.runs[i].micro)
		acts.exchanges(b.after(i), false)
	}
	return acts.acts
}

func (l *list) exchanges(batches [][]Transfer, overlap bool) {
	for _, batch := range batches {
		l.batch(overlap, batch)
	}
}

// join makes one batch: activations, then gradients, so that both ends of a pair
// of stages list them alike.
func join(forward, backward [][]Transfer) (batch []Transfer) {
	for _, more := range append(forward[:len(forward):len(forward)], backward...) {
		batch = append(batch, more...)
	}
	return batch
}

package inproc

import (
	"fmt"
	"slices"
	"time"

	"monotron/csrc/device"
	"monotron/mpu/comm"
	"monotron/mpu/comm/reduce"
)

// batch is one rank's Exchange: over when all its halves have met theirs.
type batch struct {
	task
	left   int // halves that have not met
	moving int // that have met, and whose bytes are on their way
}

// half is one side of a message.
type half struct {
	batch *batch
	call  *comm.Call
	t     device.Tensor
}

// queue holds, between two members, what one side has posted and the other not:
// sends or receives, never both.
type queue struct {
	sends, receives []*half
	sent, received  int64
}

func (q *queue) fail(err error) {
	for _, h := range slices.Concat(q.sends, q.receives) {
		if h.batch.moving == 0 {
			h.batch.end(err)
		}
	}
	q.sends, q.receives = nil, nil
}

// callOf is a message of rank that waits; nil: none.
func (q *queue) callOf(rank int) *comm.Call {
	for _, h := range slices.Concat(q.sends, q.receives) {
		if h.call.Rank == rank {
			return h.call
		}
	}
	return nil
}

// exchange posts all halves at once, then moves what has met. A message waits in
// nobody's memory but its two ends': the links are unbuffered.
func (g *member) exchange(transfers []comm.Transfer) comm.Work {
	w := g.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := g.ready(); err != nil {
		return comm.Finished(err)
	}
	// lacks is what a stall's message says of this exchange.
	b := &batch{task: task{done: make(chan struct{})}, left: len(transfers)}
	b.lacks = func() string {
		return fmt.Sprintf("an exchange of %s, with %d of %d messages incomplete", &g.Membership, b.left, len(transfers))
	}
	// Halves whose other end is there already are moved now, by the one that comes second.
	var met [][2]*half
	for _, t := range transfers {
		mine, other := g.postHalf(b, t)
		if other == nil {
			continue
		}
		pair := [2]*half{mine, other}
		if t.Send {
			pair = [2]*half{other, mine} // receiver first
		}
		met = append(met, pair)
	}
	// Both ends must agree on type and length before anything is written.
	for _, p := range met {
		if err := matches(p[0], p[1]); err != nil {
			w.fail(err)
			break
		}
	}
	g.carryPairs(met)
	if b.over || len(transfers) == 0 {
		return comm.Finished(b.err)
	}
	return pending{w, g.number(), &b.task}
}

// postHalf queues a half, or takes the one it meets out of the queue.
func (g *member) postHalf(b *batch, t comm.Transfer) (mine, other *half) {
	m := g.meeting
	ends := [2]int{t.Peer, g.Rank}
	if t.Send {
		ends = [2]int{g.Rank, t.Peer}
	}
	q := m.queues[ends]
	if q == nil {
		q = &queue{}
		m.queues[ends] = q
	}
	here, there, count := &q.receives, &q.sends, &q.received
	if t.Send {
		here, there, count = &q.sends, &q.receives, &q.sent
	}
	c := g.Message(&t, *count)
	*count++
	g.record(&c)
	mine = &half{b, &c, t.T}
	if len(*there) == 0 {
		*here = append(*here, mine)
		return mine, nil
	}
	other = (*there)[0]
	*there = (*there)[1:]
	return mine, other
}

func matches(to, from *half) error {
	if to.call.Count == from.call.Count && to.call.DType == from.call.DType {
		return nil
	}
	return comm.Differ(from.call, to.call)
}

// carryPairs moves the bytes of messages that have met, unless the world has
// failed. The caller holds the lock, which is released meanwhile.
func (g *member) carryPairs(met [][2]*half) {
	w := g.world
	var moves []reduce.Move
	for _, p := range met {
		moves = append(moves, reduce.Between(p[0].call.Count, p[0].call.DType, 0, []device.Tensor{p[0].t}, []device.Tensor{p[1].t}))
		p[0].batch.moving++
		p[1].batch.moving++
	}
	if len(met) > 0 && w.err == nil {
		w.begin()
		w.mu.Unlock()
		reduce.Carry(w.pool, moves)
		w.mu.Lock()
		w.finish()
	}
	now := time.Now()
	for _, p := range met {
		p[0].arrive(w.err, now)
		p[1].arrive(w.err, now)
	}
}

// arrive ends the half's batch when it was the last to arrive, and when the world
// has failed once none of the batch's bytes are on their way.
func (h *half) arrive(failed error, now time.Time) {
	b := h.batch
	b.moving--
	if failed == nil {
		h.call.Ended = now
		b.left--
	}
	if b.left == 0 || (failed != nil && b.moving == 0) {
		b.end(failed)
	}
}

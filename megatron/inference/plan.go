package inference

import (
	"context"
	"slices"
	"time"

	"monotron/csrc/device"
)

// plan is what one pass computes, with whose rows they are; without rows there is nothing
// to compute.
type plan struct {
	batch
	offer   *offer      // is taken instead
	members []*sequence // whose rows there are
	owners  []*sequence // of the wanted rows
	scored  []int32     // the token of the prompt that a wanted row is about; −1: the next is chosen
}

// plan waits for work and chooses the next pass; done: there will be none. With nothing to
// do it returns now and then all the same, where other ranks wait for orders.
func (b *Batcher) plan(ctx context.Context) (p *plan, done bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	idle := time.Now()
	for {
		b.sweep()
		switch {
		case ctx.Err() != nil:
			return nil, true
		case b.offered != nil && b.texts[b.editions.other()] == 0:
			return &plan{offer: b.offered}, false
		case len(b.running)+len(b.waiting) > 0:
			return b.pass(), false
		case b.draining:
			return nil, true
		case !b.followers.alone() && time.Since(idle) >= listening:
			return &plan{}, false
		}
		b.rest()
	}
}

// rest waits for news, not for long where other ranks wait for orders.
func (b *Batcher) rest() {
	if !b.followers.alone() {
		t := time.AfterFunc(listening, b.wake)
		defer t.Stop()
	}
	b.changed.Wait()
}

// pass is the next pass: of the edition whose turn it is among those that have texts. Rows of a pass
// have one edition's weights.
func (b *Batcher) pass() (p *plan) {
	for range b.texts {
		b.turn = (b.turn + 1) % int32(len(b.texts))
		if p = b.passOf(b.turn); len(p.ids) > 0 {
			break
		}
	}
	return p
}

func (b *Batcher) passOf(edition int32) *plan {
	p := &plan{batch: batch{edition: edition}}
	budget := b.config.Tokens
	for _, prefill := range []bool{false, true} {
		for _, s := range slices.Clone(b.running) {
			if pending := len(s.ids) - s.computed; s.edition == edition && s.table != nil && pending > 1 == prefill {
				budget -= b.advance(p, s, min(pending, budget))
			}
		}
	}
	for budget > 0 && len(b.waiting) > 0 && b.waiting[0].edition == edition && len(b.running) < b.config.Sequences && b.admit(b.waiting[0]) {
		s := b.waiting[0]
		b.waiting = b.waiting[1:]
		b.running = append(b.running, s)
		budget -= b.advance(p, s, min(len(s.ids)-s.computed, budget))
	}
	return p
}

// sweep drops what nobody waits for, and what can never be admitted.
func (b *Batcher) sweep() {
	drop := func(s *sequence) bool {
		switch {
		case s.stream.gone():
			b.finish(s, EndedByCancel, nil)
		case !b.fits(s):
			b.finish(s, EndedByError, errNeverFits)
		default:
			return false
		}
		return true
	}
	b.running, b.waiting = slices.DeleteFunc(b.running, drop), slices.DeleteFunc(b.waiting, drop)
}

// admit gives a sequence the blocks of all its tokens, shared ones where its beginning is
// known; false: there are too few.
func (b *Batcher) admit(s *sequence) bool {
	table, computed, last := b.beginning(s)
	if need := blocksFor(len(s.ids)) - len(table); need > b.pool.free {
		b.pool.release(table)
		return false
	}
	b.stats.PrefixAsked += int64(len(s.ids))
	b.stats.PrefixHit += int64(computed)
	s.table, s.computed, s.hashed, s.last = table, computed, len(table), last
	for len(s.table) < blocksFor(len(s.ids)) {
		s.table = append(s.table, b.pool.take())
	}
	s.stream.tell(func() {
		if s.stream.times.Began.IsZero() {
			s.stream.times.Began, s.stream.cached = time.Now(), computed
		}
	})
	return true
}

// beginning shares the blocks that hold the sequence's first tokens; the last token's logits
// are still to be made.
func (b *Batcher) beginning(s *sequence) (table []int32, computed int, last prefix) {
	table, last = []int32{}, b.roots[s.edition]
	if s.scoring() {
		return table, 0, last
	}
	for computed+device.PagedBlock < len(s.ids) {
		next := last.after(s.ids[computed : computed+device.PagedBlock])
		i, found := b.pool.share(next)
		if !found {
			break
		}
		table, last = append(table, i), next
		computed += device.PagedBlock
	}
	return table, computed, last
}

// advance adds the next n rows of a sequence to the pass. Where it lacks a block, those that
// came last give theirs away, perhaps itself. It returns how many rows were added.
func (b *Batcher) advance(p *plan, s *sequence, n int) int {
	if n < 1 {
		return 0
	}
	// Blocks for all rows up to computed+n. Sequences that came first are never preempted for later ones.
	for len(s.table) < blocksFor(s.computed+n) {
		if b.pool.free > 0 {
			s.table = append(s.table, b.pool.take())
			continue
		}
		youngest := b.running[len(b.running)-1]
		b.preempt(youngest)
		if youngest == s {
			return 0
		}
	}
	// The pass gets a copy of the table: s may lose its blocks before the pass runs.
	number := int32(len(p.tables))
	p.tables = append(p.tables, slices.Clone(s.table))
	for i := s.computed; i < s.computed+n; i++ {
		row := int32(len(p.ids))
		p.ids, p.positions, p.sequence = append(p.ids, s.ids[i]), append(p.positions, int32(i)), append(p.sequence, number)
		// Logits are wanted of the last row, which gives the next token, and of a prompt's row whose next token
		// is to be scored (about).
		about := int32(-1)
		switch {
		case s.PromptLogProbs && i+1 >= s.scored && i+1 < len(s.Prompt):
			about = s.Prompt[i+1]
		case i+1 < len(s.ids) || s.MaxNew == 0:
			continue
		}
		p.wanted, p.owners, p.scored = append(p.wanted, row), append(p.owners, s), append(p.scored, about)
	}
	p.members = append(p.members, s)
	b.stats.PromptTokens += int64(max(0, min(s.computed+n, len(s.Prompt))-s.computed))
	s.computed += n
	return n
}

// preempt takes a sequence's blocks; it waits, before all others, to be computed again. It
// has no rows in the pass that is being made: only a text that takes one row may lack a block,
// these come first and in the order of admission, and the youngest is behind it or itself.
func (b *Batcher) preempt(s *sequence) {
	b.stats.Preemptions++
	b.pool.release(s.table)
	s.table, s.computed, s.hashed, s.last = nil, 0, 0, b.roots[s.edition]
	b.running = slices.DeleteFunc(b.running, func(x *sequence) bool { return x == s })
	b.waiting = slices.Insert(b.waiting, 0, s)
}

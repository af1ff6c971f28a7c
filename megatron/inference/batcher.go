package inference

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/model"
)

// BatcherConfig bounds what a Batcher does at once.
type BatcherConfig struct {
	Blocks    int // of keys and values
	Sequences int // that run beside each other
	Tokens    int // rows of a pass
	Queue     int // requests that may wait
}

// Batcher continues many texts at once. A pass takes one row of every text that has its
// prompt behind it, and pieces of the prompts of the others, within a budget of rows. What a
// request gets depends on nothing but itself: not on who runs beside it, whether its
// beginning was there already, or whether it had to give its blocks away meanwhile.
//
// One goroutine runs it: Run. Submit, Reload and Stats are for any.
type Batcher struct {
	config   BatcherConfig
	editions editions
	told     *orders // the other ranks of the model
	dir      string  // of the weights
	pool     *blockPool

	Stepped func(rows int) // where given, is called after each pass

	mu       sync.Mutex
	changed  *sync.Cond
	waiting  []*sequence
	running  []*sequence // in the order in which they were admitted
	turn     int32       // the edition of the next pass, where both have texts
	texts    [2]int      // of each edition that have not ended
	roots    [2]prefix   // of each edition's texts
	taken    int64       // reloads so far
	offered  *offer      // nil: none
	draining bool
	failed   error
	stats    Stats
}

// offer is an iteration to take between two passes.
type offer struct {
	step int64
	done chan error // its only value: nil, or why the iteration was not taken
}

// Stats are what has happened so far.
type Stats struct {
	Running, Waiting       int
	Blocks, FreeBlocks     int
	Steps, Rows            int64
	PromptTokens           int64 // computed, also again after a preemption
	GeneratedTokens        int64
	PrefixAsked, PrefixHit int64 // tokens of admitted prompts; those whose blocks were there
	Preemptions            int64
}

// newBatcher makes the blocks on m's device; dir is where iterations are taken from.
func newBatcher(m *Loaded, c BatcherConfig, told *orders, dir string) *Batcher {
	b := &Batcher{config: c, editions: editions{list: [2]*Loaded{m}, kv: m.newPaged(c.Blocks)}, told: told, dir: dir, pool: newBlockPool(c.Blocks)}
	b.changed = sync.NewCond(&b.mu)
	return b
}

// ErrBusy: the queue is full.
var ErrBusy = errors.New("the server's queue is full; try again later")

// ErrDraining: the server is about to end.
var ErrDraining = errors.New("the server is shutting down")

// Check refuses a request that can never run.
func (b *Batcher) Check(r *Request) error {
	if err := b.editions.list[0].CheckPrompt(r.Prompt, r.MaxNew); err != nil {
		return err
	}
	if n := len(r.Prompt) + r.MaxNew; blocksFor(n) > b.config.Blocks {
		return fault.Errorf(fault.Usage, "%d tokens need %d blocks of keys and values; there are %d", n, blocksFor(n), b.config.Blocks)
	}
	return nil
}

// Submit queues requests, all or none.
func (b *Batcher) Submit(requests ...*Request) ([]*Stream, error) {
	var list []*sequence
	for _, r := range requests {
		if err := b.Check(r); err != nil {
			return nil, err
		}
		list = append(list, newSequence(r, b.wake))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.failed != nil:
		return nil, b.failed
	case b.draining:
		return nil, ErrDraining
	case len(b.waiting) > 0 && len(b.waiting)+len(list) > b.config.Queue:
		return nil, ErrBusy
	}
	b.waiting = append(b.waiting, list...)
	b.changed.Signal()
	streams := make([]*Stream, len(list))
	now := b.editions.now
	b.texts[now] += len(list)
	for i, s := range list {
		s.edition, s.last = now, b.roots[now]
		s.stream.weights = b.editions.list[now].Weights
		streams[i] = s.stream
	}
	return streams, nil
}

// Weights names those that new texts get.
func (b *Batcher) Weights() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.editions.list[b.editions.now].Weights
}

// Reload takes an iteration of the folder that was loaded, between two passes: texts that
// are there end with the weights that they began with, new ones get these. It waits until
// no text needs older weights than those in use. The error says why the iteration was not
// taken; then all is as before.
func (b *Batcher) Reload(ctx context.Context, step int64) error {
	o := &offer{step: step, done: make(chan error, 1)}
	b.mu.Lock()
	if b.failed != nil || b.draining {
		b.mu.Unlock()
		return ErrDraining
	}
	b.offered = o
	b.changed.Signal()
	b.mu.Unlock()
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *Batcher) wake() {
	b.mu.Lock()
	b.changed.Signal()
	b.mu.Unlock()
}

// Drain lets no more requests in; Run ends with the last that is there.
func (b *Batcher) Drain() {
	b.mu.Lock()
	b.draining = true
	b.changed.Signal()
	b.mu.Unlock()
}

// Stats is a copy of the counts.
func (b *Batcher) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.Running, s.Waiting, s.Blocks, s.FreeBlocks = len(b.running), len(b.waiting), b.config.Blocks, b.pool.free
	return s
}

// Run takes passes until it is drained or ctx ends. Requests that are then still there end
// with its error.
func (b *Batcher) Run(ctx context.Context) (err error) {
	stop := context.AfterFunc(ctx, b.wake)
	defer stop()
	defer func() { b.fail(err) }()
	for {
		p, done := b.plan(ctx)
		if done || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := b.carryOut(p); err != nil {
			return err
		}
	}
}

// carryOut does what was planned, on all ranks.
func (b *Batcher) carryOut(p *plan) error {
	switch {
	case p.offer != nil:
		return b.reload(p.offer)
	case len(p.ids) == 0:
		return b.told.give(&order{kind: orderNone})
	}
	return b.take(p)
}

// reload takes an iteration; the edition that it replaces has no texts.
func (b *Batcher) reload(o *offer) error {
	if err := b.told.give(&order{kind: orderReload, number: o.step}); err != nil {
		return err
	}
	e := b.editions // b's own stays what it is until all is there: others read it
	refused, err := e.reload(b.told, b.dir, o.step)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.editions, b.offered = e, nil
	if refused == nil && err == nil {
		b.taken++
		b.roots[e.now] = root(b.taken)
		if b.texts[e.other()] == 0 {
			b.pool.forget(e.other())
		}
	}
	o.done <- refused
	return err
}

// fail ends all requests.
func (b *Batcher) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.draining, b.failed = true, err
	if err == nil {
		err = ErrDraining
	}
	for _, s := range append(b.running, b.waiting...) {
		b.finish(s, EndedByError, err)
	}
	b.running, b.waiting = nil, nil
	if b.offered != nil {
		b.offered.done <- err
		b.offered = nil
	}
}

// plan is what one pass computes, with whose rows they are; without rows there is nothing
// to compute.
type plan struct {
	batch
	offer   *offer      // is taken instead
	members []*sequence // whose rows there are
	owners  []*sequence // of the wanted rows
	scored  []int32     // the token of the prompt that a wanted row tells of; −1: the next is chosen
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
		case !b.told.alone() && time.Since(idle) >= listening:
			return &plan{}, false
		}
		b.rest()
	}
}

// rest waits for news, not for long where other ranks wait for orders.
func (b *Batcher) rest() {
	if !b.told.alone() {
		t := time.AfterFunc(listening, b.wake)
		defer t.Stop()
	}
	b.changed.Wait()
}

// pass is the next pass: of the edition whose turn it is, where both have texts.
func (b *Batcher) pass() (p *plan) {
	for range b.texts {
		b.turn = 1 - b.turn
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

// sweep drops what nobody waits for.
func (b *Batcher) sweep() {
	drop := func(s *sequence) bool {
		if !s.stream.gone() {
			return false
		}
		b.finish(s, EndedByCancel, nil)
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
	number := int32(len(p.tables))
	p.tables = append(p.tables, slices.Clone(s.table))
	for i := s.computed; i < s.computed+n; i++ {
		row := int32(len(p.ids))
		p.ids, p.positions, p.sequence = append(p.ids, s.ids[i]), append(p.positions, int32(i)), append(p.sequence, number)
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
// has no rows in the pass that is being made: those come in the order of admission, and
// the prefills, which are younger than nobody's victim, last.
func (b *Batcher) preempt(s *sequence) {
	b.stats.Preemptions++
	b.pool.release(s.table)
	s.table, s.computed, s.hashed, s.last = nil, 0, 0, b.roots[s.edition]
	b.running = slices.DeleteFunc(b.running, func(x *sequence) bool { return x == s })
	b.waiting = slices.Insert(b.waiting, 0, s)
}

// take runs the pass on all ranks and gives every sequence what is its own.
func (b *Batcher) take(p *plan) error {
	if err := b.told.give(&order{kind: orderPass, batch: p.batch}); err != nil {
		return err
	}
	tokens, bad := make([]Token, len(p.wanted)), make([]error, len(p.wanted))
	err := b.editions.rows(&p.batch, func(first int, logits model.Tensor) error {
		var list []wish
		for i := range int(logits.Shape[0]) {
			list = append(list, p.owners[first+i].wish(p.scored[first+i]))
		}
		some, odd, err := b.editions.list[0].choose(logits, list)
		copy(tokens[first:], some)
		copy(bad[first:], odd)
		return err
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed != nil { // meanwhile
		return b.failed
	}
	b.stats.Steps++
	b.stats.Rows += int64(len(p.ids))
	for _, s := range p.members {
		b.share(s)
	}
	for i, s := range p.owners {
		b.give(s, tokens[i], p.scored[i] >= 0, bad[i])
	}
	for _, s := range p.members {
		if s.MaxNew == 0 && s.computed == len(s.ids) {
			b.finish(s, EndedByLength, nil)
		}
	}
	b.running = slices.DeleteFunc(b.running, func(s *sequence) bool { return s.table == nil })
	if b.Stepped != nil {
		b.Stepped(len(p.ids))
	}
	return nil
}

// give is one wanted row's token to its sequence.
func (b *Batcher) give(s *sequence, t Token, scored bool, bad error) {
	switch {
	case s.table == nil: // it has ended with an earlier row
	case bad != nil:
		b.finish(s, EndedByError, bad)
	case scored:
		s.score(t)
	default:
		b.stats.GeneratedTokens++
		if ended := s.add(t); ended != "" {
			b.finish(s, ended, nil)
		}
	}
}

// finish frees the blocks of a sequence whose text has ended. What older weights have
// computed goes with their last text.
func (b *Batcher) finish(s *sequence, why Reason, err error) {
	b.pool.release(s.table)
	s.table = nil
	s.end(why, err)
	if b.texts[s.edition]--; b.texts[s.edition] == 0 && s.edition != b.editions.now {
		b.pool.forget(s.edition)
	}
}

// share tells the pool of the blocks that have become full.
func (b *Batcher) share(s *sequence) {
	for (s.hashed+1)*device.PagedBlock <= s.computed {
		s.last = s.last.after(s.ids[s.hashed*device.PagedBlock:][:device.PagedBlock])
		b.pool.full(s.table[s.hashed], s.last, s.edition)
		s.hashed++
	}
}

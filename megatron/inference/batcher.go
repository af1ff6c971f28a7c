package inference

import (
	"context"
	"errors"
	"slices"
	"sync"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/model"
)

// BatcherConfig bounds what a Batcher does at once.
type BatcherConfig struct {
	Blocks    int // of keys and values
	Sequences int // that run together
	Tokens    int // rows of a pass
	Queue     int // requests that may wait
}

// Batcher continues many texts at once. A pass takes one row of every text that has its
// prompt behind it, and pieces of the prompts of the others, within a budget of rows. What a
// request gets depends on nothing but itself: not on the requests that run with it, whether its
// beginning was there already, or whether it had to give its blocks away meanwhile.
//
// One goroutine runs it: Run. Submit, Reload and Stats are for any.
type Batcher struct {
	config    BatcherConfig
	editions  editions
	followers *orders // the other ranks of the model
	dir       string  // of the weights
	pool      *blockPool

	Stepped func(rows int) // where given, is called after each pass

	mu       sync.Mutex
	changed  *sync.Cond
	waiting  []*sequence
	running  []*sequence // in the order in which they were admitted
	turn     int32       // the edition of the next pass, where both have texts
	texts    []int       // of each edition that have not ended
	roots    []prefix    // of each edition's texts
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

// newBatcher makes the blocks on the device of e; dir is where iterations are taken from.
func newBatcher(e editions, c BatcherConfig, followers *orders, dir string) *Batcher {
	e.kv = e.list[0].newPaged(c.Blocks)
	b := &Batcher{config: c, editions: e, followers: followers, dir: dir, pool: newBlockPool(c.Blocks), texts: make([]int, len(e.list)), roots: make([]prefix, len(e.list))}
	for i := bases; i < len(e.list); i++ {
		b.roots[i] = root(int64(bases - 1 - i))
	}
	b.changed = sync.NewCond(&b.mu)
	return b
}

// ErrBusy: the queue is full.
var ErrBusy = errors.New("the server's queue is full; try again later")

// ErrDraining: the server is about to end.
var ErrDraining = errors.New("the server is shutting down")

// Check refuses a request that can never run.
func (b *Batcher) Check(r *Request) error {
	if n := len(b.texts) - bases; r.Adapter < 0 || r.Adapter > n {
		return exitcode.Errorf(exitcode.Usage, "adapter %d is out of range: there are %d adapters", r.Adapter, n)
	}
	if err := b.editions.list[0].CheckPrompt(r.Prompt, r.MaxNew); err != nil {
		return err
	}
	if most := b.config.Blocks * device.PagedBlock; len(r.Prompt) > most || r.MaxNew > most-len(r.Prompt) {
		return exitcode.Errorf(exitcode.Usage, "%d prompt tokens and %d tokens to generate exceed the %d positions of the KV cache; request fewer tokens", len(r.Prompt), r.MaxNew, most)
	}
	return nil
}

// fits reports whether a sequence can be admitted once all others have ended.
func (b *Batcher) fits(s *sequence) bool {
	positions := b.editions.list[0].MaxContext
	return blocksFor(len(s.ids)) <= b.config.Blocks && (positions == 0 || len(s.ids) <= positions)
}

// errNeverFits ends a sequence that would wait for ever, and all others behind it. Check refuses
// such requests, so that this is a fault of ours.
var errNeverFits = errors.New("internal error: a text was accepted that has more positions than the model or the KV cache; report this with the request")

// Submit queues requests, all or none.
func (b *Batcher) Submit(requests ...*Request) ([]*Stream, error) {
	// Check all requests before any is queued.
	var list []*sequence
	for _, r := range requests {
		if err := b.Check(r); err != nil {
			return nil, err
		}
		list = append(list, newSequence(r, b.wake))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	// The queue has a limit, but a request of several sequences may exceed it when nothing waits: otherwise it
	// could never run.
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
	// A sequence keeps the weights that are current now: a reload does not change it.
	streams := make([]*Stream, len(list))
	for i, s := range list {
		s.edition = b.editions.of(s.Adapter)
		s.last, s.stream.weights = b.roots[s.edition], b.editions.list[s.edition].Weights
		b.texts[s.edition]++
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

// Reload takes an iteration of the folder that was loaded, between two passes: running texts end with the
// weights that they began with, new ones get these. It waits until
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

// Drain accepts no more requests; Run ends with the last accepted one.
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
		return b.followers.give(&order{kind: orderNone})
	}
	return b.take(p)
}

// reload takes an iteration; the edition that it replaces has no texts.
func (b *Batcher) reload(o *offer) error {
	if err := b.followers.give(&order{kind: orderReload, number: o.step}); err != nil {
		return err
	}
	e := b.editions
	e.list = slices.Clone(e.list) // b's own stays what it is until all is there: others read it
	refused, err := e.reload(b.followers, b.dir, o.step)
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

// take runs the pass on all ranks and gives every sequence what is its own.
func (b *Batcher) take(p *plan) error {
	if err := b.followers.give(&order{kind: orderPass, batch: p.batch}); err != nil {
		return err
	}
	// The pass, and a token for each wanted row; one sequence's bad logits do not fail the others.
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
	// Every sequence gets its token, and may end; b.running then has those that still own blocks.
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed != nil { // meanwhile
		return b.failed
	}
	b.stats.Steps++
	b.stats.Rows += int64(len(p.ids))
	for _, s := range p.members {
		b.filled(s)
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
// computed is freed with their last text.
func (b *Batcher) finish(s *sequence, why Reason, err error) {
	b.pool.release(s.table)
	s.table = nil
	s.end(why, err)
	if b.texts[s.edition]--; b.texts[s.edition] == 0 && s.edition < bases && s.edition != b.editions.now {
		b.pool.forget(s.edition)
	}
}

// filled reports the blocks that have become full to the pool.
func (b *Batcher) filled(s *sequence) {
	for (s.hashed+1)*device.PagedBlock <= s.computed {
		s.last = s.last.after(s.ids[s.hashed*device.PagedBlock:][:device.PagedBlock])
		b.pool.full(s.table[s.hashed], s.last, s.edition)
		s.hashed++
	}
}

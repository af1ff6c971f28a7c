package inference

import (
	"context"
	"sync/atomic"
	"time"

	"monotron/megatron/model"
	"monotron/mpu/ranks"
)

// listening is the longest time between two orders: a lost rank is noticed even without
// requests, and ranks that wait for orders know that rank 0 is alive.
const listening = 2 * time.Second

// Serve loads the model of dir cut over l's ranks, as Run does, and continues what is
// submitted to a Batcher until it is drained or ctx ends. Rank 0 chooses each pass and the
// others follow it; with at.Process this process is one of them. size says how much runs at
// once, from the bytes of a block on a rank; ready gets the batcher before its first
// pass, on rank 0. When Serve returns, every request has its end.
func Serve(ctx context.Context, l Layout, at ranks.Config, dir string, o LoadOptions,
	size func(m *Loaded, blockBytes int64) (BatcherConfig, error), ready func(*Loaded, *Batcher) error) error {
	var b atomic.Pointer[Batcher] // rank 0's
	var drained error             // that the ranks ended in order with
	err := runOn(l, at, dir, o, func(rank int, m *Loaded) error {
		followers := m.orders()
		e, err := m.editionsOf(o.Adapters)
		if err != nil {
			return err
		}
		if rank > 0 {
			return m.follow(&e, followers, dir)
		}
		c, err := size(m, m.blockBytes())
		if err != nil {
			return err
		}
		for _, x := range []order{{kind: orderSame, number: m.iteration}, {kind: orderBegin, number: int64(c.Blocks)}} {
			if err := followers.give(&x); err != nil {
				return err
			}
		}
		x := newBatcher(e, c, followers, dir)
		b.Store(x)
		if err := ready(m, x); err != nil {
			return err
		}
		if drained = x.Run(ctx); drained != nil && ctx.Err() == nil {
			return drained
		}
		return followers.give(&order{kind: orderEnd})
	})
	if err == nil {
		err = drained
	}
	if x := b.Load(); x != nil {
		x.fail(err)
	}
	return err
}

// follow takes part in everything that rank 0 orders.
func (l *Loaded) follow(e *editions, followers *orders, dir string) error {
	for {
		x, err := followers.hear()
		if err != nil {
			return err
		}
		switch x.kind {
		case orderEnd:
			return nil
		case orderSame: // a newer one may have come between two ranks' loading
			if x.number != l.iteration {
				if err := l.reload(dir, x.number); err != nil {
					return err
				}
			}
		case orderBegin:
			e.kv = l.newPaged(int(x.number))
		case orderReload:
			if _, err := e.reload(followers, dir, x.number); err != nil {
				return err
			}
		case orderPass:
			if err := e.rows(&x.batch, func(int, model.Tensor) error { return nil }); err != nil {
				return err
			}
		}
	}
}

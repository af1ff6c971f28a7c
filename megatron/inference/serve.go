package inference

import (
	"context"

	"monotron/csrc/device"
)

// Serve loads the model of dir cut over l's ranks, as Run does, and continues what is
// submitted to a Batcher until it is drained or ctx ends. Rank 0 chooses each pass and the
// others follow it. size says how much runs at once, from the bytes of a block on a rank;
// ready is told of the batcher before its first pass, on rank 0.
func Serve(ctx context.Context, l Layout, open func() (*device.Device, error), dir string, o LoadOptions,
	size func(m *Loaded, blockBytes int64) BatcherConfig, ready func(*Loaded, *Batcher) error) error {
	plans := make([]chan *batch, l.Ranks())
	for i := range plans {
		plans[i] = make(chan *batch, 1)
	}
	configs := make(chan BatcherConfig, l.Ranks()) // blocks are as many on every rank
	over, end := context.WithCancelCause(ctx)
	return Run(l, open, dir, o, func(rank int, m *Loaded) (err error) {
		defer func() {
			if err != nil {
				end(err)
			}
		}()
		if rank > 0 {
			return follow(over, m, configs, plans[rank])
		}
		defer func() {
			for _, p := range plans {
				close(p)
			}
		}()
		c := size(m, m.blockBytes())
		for range l.Ranks() - 1 {
			configs <- c
		}
		b := NewBatcher(&m.Generator, c)
		if l.Ranks() > 1 {
			b.follow = func(x *batch) {
				for _, p := range plans[1:] {
					select {
					case p <- x:
					case <-over.Done():
					}
				}
			}
		}
		if err := ready(m, b); err != nil {
			return err
		}
		return b.Run(over)
	})
}

// follow takes part in every pass that rank 0 chooses.
func follow(ctx context.Context, m *Loaded, configs <-chan BatcherConfig, plans <-chan *batch) error {
	var c BatcherConfig
	select {
	case c = <-configs:
	case <-ctx.Done():
		return nil
	}
	kv := m.newPaged(c.Blocks)
	for {
		select {
		case p, more := <-plans:
			if !more {
				return nil
			}
			if err := m.rows(p, kv, func(int, [][]float32) {}); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

package inference

import (
	"context"
	"slices"
)

// Continued is what a request gave.
type Continued struct {
	IDs      []int32
	LogProbs []float64 // of the tokens, where the request asks for them
	Ended    Reason    // EndedByStop or EndedByLength
}

// Continue continues requests by a Batcher over the model as it is now, and has an entry for each
// when all have ended; stepped, where given, is called after each pass. Where several ranks
// share the model, all ranks call it; the first one's requests count, and it alone has the result.
func (g *Generator) Continue(ctx context.Context, c BatcherConfig, requests []*Request, stepped func()) (list []Continued, err error) {
	// The first rank schedules; the others carry out its orders until it sends the end.
	followers := &orders{world: g.Sharers, device: g.Device}
	if followers.world == nil {
		followers.world = g.Pipeline
	}
	e := editions{list: []*Loaded{{Generator: *g}, nil}}
	if !followers.alone() && followers.world.Rank() > 0 {
		defer func() { e.free() }()
		return nil, e.list[0].follow(&e, followers, "")
	}
	if err := followers.give(&order{kind: orderBegin, number: int64(c.Blocks)}); err != nil {
		return nil, err
	}
	// Queue all requests, run until they have ended.
	b := newBatcher(e, c, followers, "")
	defer b.editions.free()
	if stepped != nil {
		b.Stepped = func(int) { stepped() }
	}
	streams, err := b.Submit(requests...)
	if err != nil {
		return nil, err
	}
	b.Drain()
	if err := b.Run(ctx); err != nil {
		return nil, err
	}
	if err := followers.give(&order{kind: orderEnd}); err != nil {
		return nil, err
	}
	// All tokens are in the streams by now.
	for _, s := range streams {
		r, err := s.Next(ctx)
		if err != nil {
			return nil, err
		}
		one := Continued{Ended: r.Ended}
		for _, t := range r.Tokens {
			one.IDs, one.LogProbs = append(one.IDs, t.ID), append(one.LogProbs, t.LogProb)
		}
		list = append(list, one)
	}
	return list, nil
}

// BlocksFor is how many blocks of keys and values the longest n of texts take.
func BlocksFor(texts []int, n int) (blocks int) {
	texts = slices.Clone(texts)
	slices.SortFunc(texts, func(a, b int) int { return b - a })
	for _, t := range texts[:min(n, len(texts))] {
		blocks += blocksFor(t)
	}
	return blocks
}

// free gives the blocks back.
func (e *editions) free() {
	for _, k := range e.kv {
		k.Free(e.list[0].Device)
	}
	e.kv = nil
}

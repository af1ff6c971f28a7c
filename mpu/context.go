package mpu

import (
	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// ContextKind is how the ranks that share sequences bring queries and keys together
// (--cp-comm-type).
type ContextKind string

const (
	Ring            ContextKind = "p2p"        // keys and values travel around (Liu et al., arXiv 2310.01889)
	GatherKeys      ContextKind = "all_gather" // each has all keys and values for a moment
	ExchangeHeads   ContextKind = "a2a"        // each has all positions of some heads (Jacobs et al., arXiv 2309.14509)
	HeadsInsideRing ContextKind = "a2a+p2p"    // heads among neighbours, keys among the groups of these
)

// Context is the group of context-parallel ranks: each document is cut into 2·cp equal ranges,
// of which rank c of cp has ranges c and 2·cp−1−c (Positions.ZigZag). With --cp-comm-type a2a
// neighbours exchange heads for positions. Heads of them form a row: after the exchange each
// has the positions of its row, for its part of the heads.
type Context struct {
	*comm.Group
	Heads int // neighbours that exchange heads for positions, a divisor of the ranks; 1: none do
}

// Rows is the number of rows of neighbours; Row is this rank's.
func (c Context) Rows() int { return c.Size() / c.Heads }
func (c Context) Row() int  { return c.Rank() / c.Heads }

// Head is which part of the heads this rank has after the exchange.
func (c Context) Head() int { return c.Rank() % c.Heads }

// Positions are those that a row of neighbours has together, in samples made of these documents.
func (c Context) Positions(documents Positions, row int) Positions {
	if c.Rows() == 1 {
		return AllPositions(documents.Len())
	}
	var all Positions
	for head := range c.Heads {
		all = append(all, documents.ZigZag(row*c.Heads+head, c.Size())...)
	}
	return all.inOrder(documents)
}

// Gather concatenates the ranks' rows `own` [s/cp·b, ...] to full [s·b, ...], in the order of
// positions.
func (c Context) Gather(d *device.Device, documents Positions, full, own device.Tensor) error {
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	ranks := s.Like(full)
	if err := c.AllGather(ranks, own).Wait(); err != nil {
		return err
	}
	c.eachSpan(documents, full.Shape[0], func(inRanks, inFull, rows int64) {
		d.Copy(full.Slice(0, inFull, rows), ranks.Slice(0, inRanks, rows))
	})
	return nil
}

// Scatter is Gather's backward: own [s/cp·b, ...] is the sum over the ranks of its rows of full [s·b, ...].
func (c Context) Scatter(d *device.Device, documents Positions, own, full device.Tensor) error {
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	ranks := s.Like(full)
	c.eachSpan(documents, full.Shape[0], func(inRanks, inFull, rows int64) {
		d.Copy(ranks.Slice(0, inRanks, rows), full.Slice(0, inFull, rows))
	})
	return c.ReduceScatter(own, ranks).Wait()
}

// eachSpan calls f with where each span of `all` rows begins rank by rank, and where in the order
// of positions.
func (c Context) eachSpan(documents Positions, all int64, f func(inRanks, inFull, rows int64)) {
	b, at := all/documents.Len(), int64(0)
	for rank := range c.Size() {
		for _, s := range documents.ZigZag(rank, c.Size()) {
			f(at*b, s.From*b, s.N*b)
			at += s.N
		}
	}
}

// HeadsToPositions gives neighbours the rows of their heads: parts are views [n·b, groups,
// heads of a group, d] of the rows here; all becomes [Heads·n·b, groups/Heads, Σ heads, d],
// in the order of Positions.
func (c Context) HeadsToPositions(d *device.Device, documents Positions, all device.Tensor, parts ...device.Tensor) error {
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	groups, rows := all.Shape[1], parts[0].Shape[0]
	spans := c.spansOf(documents, all)
	var transfers []comm.Transfer
	for head := range c.Heads {
		mine := s.Alloc(all.DType, rows, groups, all.Shape[2], all.Shape[3])
		at := int64(0)
		for _, p := range parts {
			d.Copy(mine.Slice(2, at, p.Shape[2]), p.Slice(1, int64(head)*groups, groups))
			at += p.Shape[2]
		}
		transfers = append(transfers, c.trade(d, head, cutAs(mine, spans[c.Head()]), spans[head])...)
	}
	return c.Exchange(transfers).Wait()
}

// PositionsToHeads is the inverse: from all [Heads·n·b, groups/Heads, Σ heads, d] it sets the parts [n·b, groups,
// heads of a group, d].
func (c Context) PositionsToHeads(d *device.Device, documents Positions, parts []device.Tensor, all device.Tensor) error {
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	groups, rows := all.Shape[1], parts[0].Shape[0]
	spans := c.spansOf(documents, all)
	var transfers []comm.Transfer
	var got []device.Tensor
	for head := range c.Heads {
		theirs := s.Alloc(all.DType, rows, groups, all.Shape[2], all.Shape[3])
		got = append(got, theirs)
		transfers = append(transfers, c.trade(d, head, spans[head], cutAs(theirs, spans[c.Head()]))...)
	}
	if err := c.Exchange(transfers).Wait(); err != nil {
		return err
	}
	for head, theirs := range got {
		at := int64(0)
		for _, p := range parts {
			d.Copy(p.Slice(1, int64(head)*groups, groups), theirs.Slice(2, at, p.Shape[2]))
			at += p.Shape[2]
		}
	}
	return nil
}

// spansOf are each neighbour's rows of `all`, span by span.
func (c Context) spansOf(documents Positions, all device.Tensor) (by [][]device.Tensor) {
	positions := c.Positions(documents, c.Row())
	b := all.Shape[0] / positions.Len()
	for head := range c.Heads {
		var spans []device.Tensor
		for _, s := range documents.ZigZag(c.Row()*c.Heads+head, c.Size()) {
			spans = append(spans, all.Slice(0, positions.before(s.From)*b, s.N*b))
		}
		by = append(by, spans)
	}
	return by
}

// cutAs cuts t into as many rows as each of the spans has.
func cutAs(t device.Tensor, spans []device.Tensor) (cut []device.Tensor) {
	at := int64(0)
	for _, s := range spans {
		cut = append(cut, t.Slice(0, at, s.Shape[0]))
		at += s.Shape[0]
	}
	return cut
}

// trade sends and receives spans to and from a neighbour; this rank's own are copied.
func (c Context) trade(d *device.Device, neighbour int, send, receive []device.Tensor) (transfers []comm.Transfer) {
	if neighbour == c.Head() {
		for i := range send {
			d.Copy(receive[i], send[i])
		}
		return nil
	}
	peer := c.Row()*c.Heads + neighbour
	for _, t := range send {
		transfers = append(transfers, comm.Transfer{Peer: peer, Send: true, T: t})
	}
	for _, t := range receive {
		transfers = append(transfers, comm.Transfer{Peer: peer, T: t})
	}
	return transfers
}

// Around is one step of the ring: it sends tensors to the rank of the next row that has the same
// heads, and receives as many, of the same shapes and dtypes, from the previous row. The tensors
// must not be used until Wait returns.
func (c Context) Around(send, receive []device.Tensor) comm.Work {
	rows := c.Rows()
	to, from := (c.Row()+1)%rows*c.Heads+c.Head(), (c.Row()+rows-1)%rows*c.Heads+c.Head()
	var transfers []comm.Transfer
	for i := range send {
		transfers = append(transfers, comm.Transfer{Peer: to, Send: true, T: send[i]}, comm.Transfer{Peer: from, T: receive[i]})
	}
	return c.Exchange(transfers)
}

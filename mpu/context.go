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

// Context is the ranks that share sequences: rank c of cp has stretches c and 2·cp−1−c of
// 2·cp equal ones (Positions.ZigZag). Neighbours may exchange heads for positions; after
// that, rank r of a row of n of them stands for stretches r·n..r·n+n−1 and those that
// mirror them: ZigZag(r, cp/n), again.
type Context struct {
	*comm.Group
	Heads int // neighbours that exchange heads for positions, a divisor of the ranks; 1: none do
}

// Rows is how many groups of neighbours there are; Row is this rank's.
func (c Context) Rows() int { return c.Size() / c.Heads }
func (c Context) Row() int  { return c.Rank() / c.Heads }

// Head is which part of the heads this rank has after the exchange.
func (c Context) Head() int { return c.Rank() % c.Heads }

// Positions are those of the rows after the exchange, of samples of n positions.
func (c Context) Positions(n int64) Positions { return AllPositions(n).ZigZag(c.Row(), c.Rows()) }

// Gather joins the ranks' rows `own` [s/cp·b, ...] to whole [s·b, ...], in the order of
// positions.
func (c Context) Gather(d *device.Device, whole, own device.Tensor) error {
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	ranks := s.Like(whole)
	if err := c.AllGather(ranks, own).Wait(); err != nil {
		return err
	}
	c.eachStretch(whole.Shape[0], func(inRanks, inWhole, rows int64) {
		d.Copy(whole.Slice(0, inWhole, rows), ranks.Slice(0, inRanks, rows))
	})
	return nil
}

// Scatter is Gather's backward: own is the sum over the ranks of its rows of whole.
func (c Context) Scatter(d *device.Device, own, whole device.Tensor) error {
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	ranks := s.Like(whole)
	c.eachStretch(whole.Shape[0], func(inRanks, inWhole, rows int64) {
		d.Copy(ranks.Slice(0, inRanks, rows), whole.Slice(0, inWhole, rows))
	})
	return c.ReduceScatter(own, ranks).Wait()
}

// eachStretch tells where each stretch of `all` rows begins rank by rank, and where in the
// order of positions.
func (c Context) eachStretch(all int64, f func(inRanks, inWhole, rows int64)) {
	n := int64(c.Size())
	rows := all / (2 * n)
	for rank := range n {
		f(2*rank*rows, rank*rows, rows)
		f((2*rank+1)*rows, (2*n-1-rank)*rows, rows)
	}
}

// HeadsToPositions gives neighbours the rows of their heads: parts are views [n·b, groups,
// heads of a group, d] of the rows here; all becomes [Heads·n·b, groups/Heads, Σ heads, d],
// in the order of Positions.
func (c Context) HeadsToPositions(d *device.Device, all device.Tensor, parts ...device.Tensor) error {
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	groups, rows := all.Shape[1], parts[0].Shape[0]
	var transfers []comm.Transfer
	for head := range c.Heads {
		mine := s.Alloc(all.DType, rows, groups, all.Shape[2], all.Shape[3])
		at := int64(0)
		for _, p := range parts {
			d.Copy(mine.Slice(2, at, p.Shape[2]), p.Slice(1, int64(head)*groups, groups))
			at += p.Shape[2]
		}
		transfers = append(transfers, c.trade(d, head, halves(mine), c.halvesOf(all, head))...)
	}
	return c.Exchange(transfers).Wait()
}

// PositionsToHeads is the way back; parts are written.
func (c Context) PositionsToHeads(d *device.Device, parts []device.Tensor, all device.Tensor) error {
	s := d.Arena.Scope(device.Communication)
	defer s.Release()
	groups, rows := all.Shape[1], parts[0].Shape[0]
	var transfers []comm.Transfer
	var got []device.Tensor
	for head := range c.Heads {
		theirs := s.Alloc(all.DType, rows, groups, all.Shape[2], all.Shape[3])
		got = append(got, theirs)
		transfers = append(transfers, c.trade(d, head, c.halvesOf(all, head), halves(theirs))...)
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

// halves are a rank's two stretches.
func halves(t device.Tensor) [2]device.Tensor {
	n := t.Shape[0] / 2
	return [2]device.Tensor{t.Slice(0, 0, n), t.Slice(0, n, n)}
}

// halvesOf are the stretches in `all` of a neighbour.
func (c Context) halvesOf(all device.Tensor, neighbour int) [2]device.Tensor {
	last := int64(2*c.Heads - 1)
	n := all.Shape[0] / (last + 1)
	return [2]device.Tensor{all.Slice(0, int64(neighbour)*n, n), all.Slice(0, (last-int64(neighbour))*n, n)}
}

// trade sends and receives both stretches to and from a neighbour; this rank's own are
// copied.
func (c Context) trade(d *device.Device, neighbour int, send, receive [2]device.Tensor) (transfers []comm.Transfer) {
	for i := range send {
		if neighbour == c.Head() {
			d.Copy(receive[i], send[i])
			continue
		}
		peer := c.Row()*c.Heads + neighbour
		transfers = append(transfers, comm.Transfer{Peer: peer, Send: true, T: send[i]}, comm.Transfer{Peer: peer, T: receive[i]})
	}
	return transfers
}

// Around sends tensors to the next row's rank with this one's heads, and receives as many
// from the row before. They are the collective's until Wait.
func (c Context) Around(send, receive []device.Tensor) comm.Work {
	rows := c.Rows()
	to, from := (c.Row()+1)%rows*c.Heads+c.Head(), (c.Row()+rows-1)%rows*c.Heads+c.Head()
	var transfers []comm.Transfer
	for i := range send {
		transfers = append(transfers, comm.Transfer{Peer: to, Send: true, T: send[i]}, comm.Transfer{Peer: from, T: receive[i]})
	}
	return c.Exchange(transfers)
}

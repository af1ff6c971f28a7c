//go:build cgo && linux

package nccl

import (
	"math/bits"

	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// tree is a sum as a comm.Tree, whose order NCCL's own sums do not have: ranks send each other
// shares, each adds up its own among its ops, and in an all_reduce sends the sum to all.
type tree struct {
	group  *group
	call   *comm.Collective
	parts  []device.Tensor // of this rank's share, by rank; its own lies in call.In
	memory *device.Scope   // of the others' parts
	shares comm.Work
	over   bool
	err    error
}

// startTree begins an all_reduce or a reduce_scatter with the exchange of shares.
func (g *group) startTree(c *comm.Collective) comm.Work {
	t := &tree{group: g, call: c, parts: make([]device.Tensor, g.Size()), memory: g.world.device.Arena.Scope(device.Communication)}
	own := g.share(c.In, g.Rank)
	t.parts[g.Rank] = own
	var transfers []comm.Transfer
	for peer := range g.Size() {
		if peer == g.Rank {
			continue
		}
		if theirs := g.share(c.In, peer); theirs.Len() > 0 {
			transfers = append(transfers, comm.Transfer{Peer: peer, Send: true, T: theirs})
		}
		if own.Len() > 0 {
			t.parts[peer] = t.memory.Alloc(own.DType, own.Len())
			transfers = append(transfers, comm.Transfer{Peer: peer, T: t.parts[peer]})
		}
	}
	t.shares = g.Start(&comm.Collective{Op: comm.Exchange, Transfers: transfers})
	return t
}

// share is a rank's part of a tensor; the last ranks' are shorter, or empty, where it has not
// equal ones.
func (g *group) share(t device.Tensor, rank int) device.Tensor {
	n := (t.Len() + int64(g.Size()) - 1) / int64(g.Size())
	from := min(t.Len(), int64(rank)*n)
	return device.View(t.Data, t.DType, t.Len()).Slice(0, from, min(n, t.Len()-from))
}

// Wait enqueues the additions behind the exchange, and with an all_reduce the ops after it behind
// another one. The memory of the parts is free then: what follows works behind both.
func (t *tree) Wait() error {
	if t.over {
		return t.err
	}
	t.over = true
	defer t.memory.Release()
	if t.err = t.shares.Wait(); t.err != nil {
		return t.err
	}
	g, c := t.group, t.call
	own := c.Out
	if c.Op == comm.AllReduce {
		own = g.share(c.Out, g.Rank)
	}
	if own.Len() > 0 {
		t.add(own, t.parts)
	}
	if c.Op == comm.AllReduce {
		t.err = g.Start(&comm.Collective{Op: comm.Exchange, Transfers: g.sums(c.Out, own)}).Wait()
	}
	return t.err
}

// sums are the messages by which every rank gets the sums of all shares of t; own is this one's.
func (g *group) sums(t, own device.Tensor) (transfers []comm.Transfer) {
	for peer := range g.Size() {
		if peer == g.Rank {
			continue
		}
		if own.Len() > 0 {
			transfers = append(transfers, comm.Transfer{Peer: peer, Send: true, T: own})
		}
		if theirs := g.share(t, peer); theirs.Len() > 0 {
			transfers = append(transfers, comm.Transfer{Peer: peer, T: theirs})
		}
	}
	return transfers
}

// add sets `to` to the sum of two parts or more: a subtree of as many as a power of two allows, and
// the rest. Sums of subtrees lie in others' parts.
func (t *tree) add(to device.Tensor, parts []device.Tensor) {
	left := 1 << (bits.Len(uint(len(parts)-1)) - 1)
	flat := device.View(to.Data, to.DType, to.Len())
	t.group.world.device.Add(flat, t.subtree(parts[:left]), t.subtree(parts[left:]))
}

// subtree is the sum of some parts.
func (t *tree) subtree(parts []device.Tensor) device.Tensor {
	if len(parts) == 1 {
		return parts[0]
	}
	to := parts[0]
	if to.Data == t.parts[t.group.Rank].Data { // which stays as it is
		to = parts[1]
	}
	t.add(to, parts)
	return to
}

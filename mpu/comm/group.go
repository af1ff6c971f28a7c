package comm

import (
	"fmt"
	"slices"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
)

// Group is a set of ranks, in order, and this rank's position among them. Every
// rank calls the same collectives in the same order, with equal sizes and
// dtypes. Tensors are contiguous, of dtype f32, f64, bf16, f16, i32 or i64 where
// they are reduced; bf16 and f16 are summed in f32 and rounded once.
// A tensor of the wrong size or dtype on one rank alone is a bug and panics,
// whatever the engine; ranks that disagree all get the same error.
type Group struct {
	member Membership
	engine Engine
}

// NewGroup is a rank's group over an engine.
func NewGroup(m Membership, e Engine) *Group { return &Group{m, e} }

// Join checks that rank may ask for the group `name` of some of a world's ranks.
func Join(name string, rank int, members []int, world int) (m Membership, err error) {
	for i, member := range members {
		if member < 0 || member >= world || slices.Contains(members[:i], member) {
			return m, exitcode.Errorf(exitcode.Internal, "internal error: group %s of ranks %v: each member must be one of the %d ranks of the run, and may occur only once; report this, and include the command line", name, members, world)
		}
	}
	m = Membership{Name: name, Members: slices.Clone(members), Rank: slices.Index(members, rank)}
	if m.Rank < 0 {
		return m, exitcode.Errorf(exitcode.Internal, "internal error: rank %d is not a member of group %s of ranks %v; report this, and include the command line", rank, name, members)
	}
	return m, nil
}

func (g *Group) Name() string           { return g.member.Name }
func (g *Group) Rank() int              { return g.member.Rank }
func (g *Group) Size() int              { return g.member.Size() }
func (g *Group) Members() []int         { return g.member.Members }
func (g *Group) Membership() Membership { return g.member }

// Over is the same group with another engine, which wraps this one's.
func (g *Group) Over(wrap func(Engine) Engine) *Group { return &Group{g.member, wrap(g.engine)} }

// Start begins a collective, once its tensors have been checked.
func (g *Group) Start(c *Collective) Work {
	if !g.fits(c) {
		panic(fmt.Sprintf("comm: %s in group %s of %d called with %v", c.Op, g.Name(), g.Size(), c.tensors()))
	}
	return g.engine.Start(c)
}

// AllReduce combines t in place. A Tree is of f32.
func (g *Group) AllReduce(t device.Tensor, op ReduceOp) Work {
	return g.Start(&Collective{Op: AllReduce, Reduce: op, In: t, Out: t})
}

// Reduce combines t in place at root; the others keep theirs.
func (g *Group) Reduce(t device.Tensor, op ReduceOp, root int) Work {
	return g.Start(&Collective{Op: Reduce, Reduce: op, Root: root, In: t, Out: t})
}

// Broadcast gives everybody root's t.
func (g *Group) Broadcast(t device.Tensor, root int) Work {
	return g.Start(&Collective{Op: Broadcast, Root: root, In: t, Out: t})
}

// AllGather fills out, Size() times as long as in, in rank order. In may be
// this rank's part of out.
func (g *Group) AllGather(out, in device.Tensor) Work {
	return g.Start(&Collective{Op: AllGather, In: in, Out: out})
}

// Gather is AllGather at root; the others' out is not given.
func (g *Group) Gather(out, in device.Tensor, root int) Work {
	return g.Start(&Collective{Op: Gather, Root: root, In: in, Out: out})
}

// Scatter gives out the rank's part of root's in, which is Size() times as
// long; the others' in is not given.
func (g *Group) Scatter(out, in device.Tensor, root int) Work {
	return g.Start(&Collective{Op: Scatter, Root: root, In: in, Out: out})
}

// ReduceScatter leaves this rank's part of the sum of in, Size() times as
// long as out. Out may be this rank's part of in.
func (g *Group) ReduceScatter(out, in device.Tensor) Work {
	return g.Start(&Collective{Op: ReduceScatter, Reduce: Sum, In: in, Out: out})
}

// ReduceScatterTree is ReduceScatter of a sum as a Tree.
func (g *Group) ReduceScatterTree(out, in device.Tensor) Work {
	return g.Start(&Collective{Op: ReduceScatter, Reduce: Tree, In: in, Out: out})
}

// AllToAllV sends send[i] to rank i and receives recv[i] from it.
func (g *Group) AllToAllV(recv, send []device.Tensor) Work {
	c := &Collective{Op: AllToAll, Transfers: make([]Transfer, 0, 2*g.Size())}
	for peer := range max(len(send), len(recv)) {
		c.Transfers = append(c.Transfers, Transfer{peer, true, at(send, peer)}, Transfer{peer, false, at(recv, peer)})
	}
	return g.Start(c)
}

func at(list []device.Tensor, i int) (t device.Tensor) {
	if i < len(list) {
		t = list[i]
	}
	return t
}

// Exchange makes all transfers as one: none waits for another. The i-th send
// from a to b meets b's i-th receive from a.
func (g *Group) Exchange(transfers []Transfer) Work {
	return g.Start(&Collective{Op: Exchange, Transfers: transfers})
}

// Barrier returns when all ranks have called it.
func (g *Group) Barrier() error { return g.Start(&Collective{Op: Barrier}).Wait() }

// fits reports whether the tensors can be meant.
func (g *Group) fits(c *Collective) bool {
	if c.Reduce != 0 && !summable(c.In) || c.Reduce == Tree && c.In.DType != device.F32 || c.Op.Rooted() && !g.has(c.Root) {
		return false
	}
	here := g.Rank() == c.Root
	switch c.Op {
	case AllReduce, Reduce, Broadcast:
		return contiguous(c.In)
	case AllGather:
		return g.times(c.Out, c.In)
	case Gather:
		return contiguous(c.In) && (!here || g.times(c.Out, c.In))
	case Scatter:
		return contiguous(c.Out) && (!here || g.times(c.In, c.Out))
	case ReduceScatter:
		return g.times(c.In, c.Out)
	case AllToAll:
		return len(c.Transfers) == 2*g.Size() && g.reachable(c.Transfers) && alike(c.Transfers[2*g.Rank()].T, c.Transfers[2*g.Rank()+1].T)
	case Exchange:
		return g.reachable(c.Transfers)
	}
	return c.Op == Barrier
}

func (g *Group) has(rank int) bool { return rank >= 0 && rank < g.Size() }

// times reports whether long is Size() times as long as short.
func (g *Group) times(long, short device.Tensor) bool {
	return contiguous(long) && contiguous(short) && long.DType == short.DType && long.Len() == short.Len()*int64(g.Size())
}

func (g *Group) reachable(transfers []Transfer) bool {
	return !slices.ContainsFunc(transfers, func(t Transfer) bool { return !contiguous(t.T) || !g.has(t.Peer) })
}

func alike(a, b device.Tensor) bool { return a.DType == b.DType && a.Len() == b.Len() }

func contiguous(t device.Tensor) bool { return t.Given() && t.Contiguous() }

// summed are the dtypes that every engine can combine.
var summed = []device.DType{device.F32, device.F64, device.BF16, device.F16, device.I32, device.I64}

func summable(t device.Tensor) bool { return contiguous(t) && slices.Contains(summed, t.DType) }

// tensors are all that take part.
func (c *Collective) tensors() (list []device.Tensor) {
	if c.In.Given() {
		list = append(list, c.In)
	}
	if c.Out.Given() && !c.InPlace() {
		list = append(list, c.Out)
	}
	for _, t := range c.Transfers {
		list = append(list, t.T)
	}
	return list
}

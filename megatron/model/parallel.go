package model

import (
	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// Parallel says how a stage shares its layers with other ranks.
type Parallel struct {
	TP               *comm.Group // ranks that share each layer
	SequenceParallel bool        // outside the cut layers each holds its stretch of positions
	Overlap          bool        // products overlap the exchange of their rows, in pieces: mpu.Region
	ByRow            bool        // forward, a row has the same bits whatever other rows there are: mpu.Region
	// Of the axes that ranks cut (--reduction-leaves): mpu.Region; 0: sums have the order of the layout.
	Leaves int
	// Stretches of rows and of columns of each weight of a linear layer that come and go by themselves
	// (--memory-centric-tiling); 0: layers come and go.
	Tiles         int
	FP8           *mpu.FP8             // of linear layers' products, but of those that KeepsOperands names; nil: none
	KeepsOperands func(layer int) bool // whether a layer's products keep their operands
	// Inputs kept of recomputed segments are cut over TP (--distribute-saved-activations); not those from
	// another stage.
	DistributeSaved bool

	// Context are the ranks that share every sequence (topology.CP), and how the attention of
	// each layer, or of all, exchanges with them; none: mpu.Ring. ContextHeads is how many
	// neighbours exchange heads in mpu.HeadsInsideRing.
	Context      *comm.Group
	ContextKinds []mpu.ContextKind
	ContextHeads int

	// Embedding joins this rank with the rank of the same tensor-parallel number
	// that holds the other copy of a tied table: the first stage's, where the
	// embedding is, and the last's, where the head is. Not used where one stage has
	// both, or where the table is not tied.
	Embedding *comm.Group

	// Of experts: those who hold all of a layer's once (topology.TPEP), how many ranks share
	// one expert, and who shares the tokens of a micro-batch, and of a batch.
	Experts           *comm.Group
	ExpertParts       int
	ExpertSharers     *comm.Group // who has the other parts of the experts here (topology.ExpertTP); nil: nobody, or nobody asks
	AllGather         bool        // --moe-token-dispatcher-type allgather
	Tokens, AllTokens *comm.Group

	// QuerySharers are the ranks of TP that share this rank's query group, where
	// groups are fewer than ranks: see the function of this name.
	QuerySharers *comm.Group
}

// Alone is the layout of one rank.
func Alone(d *device.Device) Parallel { return Parallel{TP: comm.Solo("tp", 0, d)} }

func (p Parallel) region() mpu.Region {
	return mpu.Region{Group: p.TP, Sequence: p.SequenceParallel, ByRow: p.ByRow, Overlap: p.Overlap, Leaves: p.Leaves}
}

// check lists why the model cannot be cut so.
func (p Parallel) check(c *StageConfig) error {
	m, tp := c.Model, p.TP.Size()
	bad := func(format string, args ...any) error {
		return exitcode.Errorf(exitcode.Usage, "--tensor-model-parallel-size %d must divide "+format+"; use another size", append([]any{tp}, args...)...)
	}
	switch {
	// Attention is cut by heads; ranks may share a query group, but only evenly.
	case m.UncutHeads(tp) != "":
		return exitcode.Errorf(exitcode.Usage, "%s", m.UncutHeads(tp))
	case m.NumQueryGroups < tp && (p.QuerySharers == nil || p.QuerySharers.Size() != tp/m.NumQueryGroups):
		return exitcode.Errorf(exitcode.Internal, "internal error: %d query groups on %d ranks: the communication group of the %d ranks that share a query group is missing; report this, and include the command line", m.NumQueryGroups, tp, tp/m.NumQueryGroups)
	case m.Full != nil && m.NumQueryGroups != m.Full.NumQueryGroups && (m.NumQueryGroups%tp != 0 || m.Full.NumQueryGroups%tp != 0):
		return bad("both the %d query groups of some layers and the %d query groups of the others", m.NumQueryGroups, m.Full.NumQueryGroups)
	// Linear attention and convolutions are cut by key heads and channels, over context-parallel ranks too.
	case m.Delta != nil && (m.Delta.KeyHeads%tp != 0 || m.Delta.ValueHeads%m.Delta.KeyHeads != 0):
		return bad("--linear-num-key-heads %d and --linear-num-value-heads %d", m.Delta.KeyHeads, m.Delta.ValueHeads)
	case m.Delta != nil && m.Delta.KeyHeads/tp%size(p.Context) != 0:
		return exitcode.Errorf(exitcode.Usage, "--context-parallel-size %d must divide the %d key heads that a tensor-parallel rank has in each gated delta net, because context-parallel ranks exchange these heads; use another size", size(p.Context), m.Delta.KeyHeads/tp)
	case m.Conv != nil && m.HiddenSize%(tp*size(p.Context)) != 0:
		return exitcode.Errorf(exitcode.Usage, "--hidden-size %d must be a multiple of --tensor-model-parallel-size %d x --context-parallel-size %d, since these ranks share the channels of convolutions; use other sizes", m.HiddenSize, tp, size(p.Context))
	case m.Mamba != nil && m.Mamba.Uncut(tp, size(p.Context)) != "":
		return exitcode.Errorf(exitcode.Usage, "%s", m.Mamba.Uncut(tp, size(p.Context)))
	// MLPs are cut by columns, tables by rows.
	case m.FFNHiddenSize%tp != 0:
		return bad("--ffn-hidden-size %d", m.FFNHiddenSize)
	case m.PaddedVocabSize%tp != 0:
		return bad("the %d rows of the padded vocabulary", m.PaddedVocabSize)
	// Combinations that exclude each other, and groups that the caller must give.
	case p.SequenceParallel && p.DistributeSaved:
		return exitcode.Errorf(exitcode.Usage, "--distribute-saved-activations cannot be combined with --sequence-parallel, which already shards saved activations; leave --distribute-saved-activations out")
	case p.headsPerContext(m) != nil:
		return p.headsPerContext(m)
	case c.shares() && p.Embedding == nil:
		return exitcode.Errorf(exitcode.Internal, "internal error: an embedding on two stages needs the communication group of these stages; report this, and include the command line")
	}
	return nil
}

// headsPerContext is the reason why heads cannot be exchanged for positions.
func (p Parallel) headsPerContext(m *spec.Model) error {
	for layer := range m.NumLayers {
		groups := max(1, m.AttentionOf(layer).NumQueryGroups/p.TP.Size()) // on a rank
		if c, kind := p.contextOf(layer); c.Heads > 1 && groups%c.Heads != 0 {
			return exitcode.Errorf(exitcode.Usage, "--cp-comm-type %s: %d ranks exchange heads, but %[2]d does not divide the %d query groups of each tensor-parallel rank; use p2p or all_gather", kind, c.Heads, groups)
		}
	}
	return nil
}

// expertShare is which experts of a layer are here.
func (p Parallel) expertShare(m *spec.Model) mpu.ExpertShare {
	at := mpu.ExpertShare{Experts: m.Experts.Num, Here: m.Experts.Num, Parts: 1, Leaves: p.Leaves}
	if n := size(p.Experts); n > 1 {
		at.Parts = max(1, p.ExpertParts)
		at.Here = m.Experts.Num / (n / at.Parts)
		at.First, at.Part = p.Experts.Rank()/at.Parts*at.Here, p.Experts.Rank()%at.Parts
	}
	if at.Parts > 1 {
		at.Sharers = p.ExpertSharers
	}
	return at
}

func (p Parallel) dispatcher(m *spec.Model) *mpu.Dispatcher {
	d := mpu.NewDispatcher(p.expertShare(m), p.Experts, p.AllGather)
	if m.Experts.CapacityFactor > 0 {
		d.Capacity = m.Experts.Capacity
	}
	return d
}

// share is which query groups and heads of an attention a rank has.
type share struct {
	groups    int64 // query groups here
	perGroup  int64 // query heads of each, here
	firstHead int64
	rows      [][2]int64 // of linear_qkv that no other rank has
	shared    *mpu.SharedRows
}

// share cuts an attention by query groups. With fewer groups than ranks, ranks
// share a group: each has its part of the group's query heads, and the group's key
// and value like the others.
func (p Parallel) share(m *spec.Model) share {
	size, rank := int64(p.TP.Size()), int64(p.TP.Rank())
	groups, d := int64(m.NumQueryGroups), int64(m.KVChannels)
	perGroup := int64(m.NumAttentionHeads) / groups
	s := share{groups: groups / size, perGroup: perGroup, firstHead: rank * int64(m.NumAttentionHeads) / size}
	queries := perGroup * d // rows of a group's queries, and of its gates
	both := int64(m.KeyValues()) * d
	block := queries + both
	if m.OutputGate {
		block += queries
	}
	if groups >= size {
		s.rows = [][2]int64{{rank * s.groups * block, s.groups * block}}
		return s
	}
	sharers := size / groups
	s.groups, s.perGroup = 1, perGroup/sharers
	start := rank / sharers * block
	for at := start; at < start+block-both; at += queries {
		s.rows = append(s.rows, [2]int64{at + rank%sharers*s.perGroup*d, s.perGroup * d})
	}
	if both == 0 {
		return s
	}
	s.shared = &mpu.SharedRows{Rows: [][2]int64{{start + block - both, both}}, Sharers: mpu.Region{Group: p.QuerySharers}}
	return s
}

package training

import (
	"monotron/csrc/device"
	"monotron/megatron/model"
	"monotron/megatron/spec"
	"monotron/mpu/comm"
	"monotron/mpu/comm/inject"
	"monotron/mpu/comm/watch"
	"monotron/mpu/topology"
)

// Rank is one rank of a run: its number, its place in the layout, its device and
// the groups it is in.
type Rank struct {
	Number int
	Sizes  topology.Sizes
	Place  topology.Place
	Device *device.Device

	World     comm.Group // all ranks
	TP        comm.Group // share each layer
	PP        comm.Group // the stages of one copy of the model
	DP        comm.Group // the same part of the model, other samples
	Model     comm.Group // one copy of the model
	Embedding comm.Group // first and last stage; nil in between
	Saves     comm.Group // all ranks, for saving beside the training
	Sharers   comm.Group // of TP: share a query group where groups are fewer than ranks

	// With --num-distributed-optimizer-instances; else nil:
	Shard  comm.Group // of DP: share one copy of the optimizer's state
	Across comm.Group // of DP: have the same shard of each copy

	Carrier string           // how tensors travel between ranks, where that is worth a line
	RunName string           // alike on all ranks of a run of processes; "": all ranks are in this process
	tell    func(string)     // takes what the rank is at; nil: nobody asks
	watch   *watch.Recorder  // nil: nobody watches
	inject  *inject.Injector // faults made on purpose; nil: none
}

// Alone is the one rank of a run on d.
func Alone(d *device.Device) *Rank {
	solo := func(kind topology.Kind) comm.Group { return comm.Solo{Label: string(kind), Device: d} }
	return &Rank{Sizes: Layout{}.Sizes(), Device: d, World: solo(topology.All), Saves: solo(topology.All), TP: solo(topology.TP), PP: solo(topology.PP), DP: solo(topology.DP),
		Model: solo(topology.Model), Embedding: solo(topology.Embedding), Sharers: solo("query-sharers")}
}

// Sizes are the layout's, a size that is not set counting as 1.
func (l Layout) Sizes() topology.Sizes {
	return topology.Sizes{TP: max(1, l.TP), CP: max(1, l.CP), DP: max(1, l.DP), PP: max(1, l.PP), EP: max(1, l.EP), ETP: l.ETP, PPBeforeDP: l.OrderTPPPDP}
}

// joinRank is rank `number` of w in the layout l of a model, computing on d and watched
// by rec, which may be nil.
func joinRank(w comm.Groups, number int, l Layout, m *spec.Model, d *device.Device, rec *watch.Recorder) (*Rank, error) {
	sizes := l.Sizes()
	r := &Rank{Number: number, Sizes: sizes, Place: sizes.At(number), Device: d, watch: rec}
	type joining struct {
		group   *comm.Group
		kind    topology.Kind
		members []int
	}
	groups := []joining{
		{&r.World, topology.All, sizes.Group(topology.All, number)},
		{&r.TP, topology.TP, sizes.Group(topology.TP, number)},
		{&r.PP, topology.PP, sizes.Group(topology.PP, number)},
		{&r.DP, topology.DP, sizes.Group(topology.DP, number)},
		{&r.Model, topology.Model, sizes.Group(topology.Model, number)},
		{&r.Embedding, topology.Embedding, sizes.Group(topology.Embedding, number)},
		{&r.Sharers, "query-sharers", model.QuerySharers(m, sizes.Group(topology.TP, number), r.Place.TP)},
	}
	if n := l.OptimizerInstances; n > 1 {
		shard, across := sizes.Instances(n, number)
		groups = append(groups, joining{&r.Shard, "dp-shard", shard}, joining{&r.Across, "dp-across", across})
	}
	for _, g := range groups {
		if g.members == nil {
			continue
		}
		var err error
		if *g.group, err = w.Group(number, string(g.kind), g.members, d); err != nil {
			return nil, err
		}
		*g.group = rec.Wrap(*g.group, g.members, false)
	}
	return r, nil
}

// First tells whether this is the rank that speaks for what all ranks share;
// Last is the one that knows the loss, and prints it as Megatron's does.
func (r *Rank) First() bool { return r.Number == 0 }
func (r *Rank) Last() bool  { return r.Number == r.Sizes.World()-1 }

package plan

import (
	"slices"
	"strconv"
	"strings"

	"monotron/csrc/device"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/spec"
	"monotron/megatron/training"
	"monotron/mpu/comm"
	"monotron/mpu/health"
	"monotron/mpu/ranks"
)

// Cost is work of a rank, in seconds by a machine's rates before its constants.
type Cost struct {
	Compute float64 // of products and attention
	Move    float64 // of ops that wait for memory, and of exchanges inside a node
	Between float64 // of exchanges between nodes
	Ops     float64 // seconds of beginning ops
}

func (c *Cost) add(d Cost, times float64) {
	c.Compute += times * d.Compute
	c.Move += times * d.Move
	c.Between += times * d.Between
	c.Ops += times * d.Ops
}

// seconds under a machine's constants.
func (c Cost) seconds(k Constants) float64 {
	return k.Compute*c.Compute + k.Move*(c.Move+c.Ops) + k.Between*c.Between
}

// pass is a forward and a backward, with what is recomputed in it.
type pass struct{ forward, backward Cost }

// units are what a micro-batch takes in each part of the model, counted op by op from the run's own code.
type units struct {
	embedding, head pass
	kinds           []spec.LayerKind // of layers; then of each:
	layer           []pass
	kept            []int64 // activations that a layer leaves for its backward
}

// unitsOf counts one micro-batch of a model with a layer of each kind, under c's tensor and
// expert parallelism.
func unitsOf(c config.Run, m *Machine, kind string) (*units, error) {
	// A model of one layer of each kind, on one stage, not sharded.
	u, layers := newUnits(&c.Model)
	c.Layout.PP, c.Layout.VP, c.Layout.StageString, c.Layout.PartitionMethod, c.Layout.FirstStageLayers, c.Layout.LastStageLayers = 1, 1, "", "", 0, 0
	c.Layout.Sharding, c.Layout.DistributedOptimizer, c.Layout.OverlapGradReduce, c.Layout.OverlapParamGather, c.Layout.Schedule = "", false, false, false, ""
	c.Layout.EmbeddingCountsAsLayer, c.Layout.LossCountsAsLayer = false, false
	if c.Model.Experts == nil {
		c.Layout.DP = 1
	}
	c.Model = c.Model.WithLayers(layers)
	c.EvalIters, c.FullValidation, c.Graphs, c.FreezeParameters = 0, false, false, nil
	c.Layout.WorldSize = c.Layout.Sizes().World()
	if c.Recompute.Granularity == "full" {
		c.Recompute.NumLayers = 1
	}
	// A dry run, whose ops and memory go to the unit that is under way.
	job, err := training.Rehearsal(c, 1)
	if err != nil {
		return nil, err
	}
	meter := &meter{machine: m, config: &c, units: u, dtype: c.DType()}
	d := device.Counting(kind, nil, device.Watching{Ran: meter.ran})
	defer d.Close()
	rank, err := ranks.Imagine(engine.Ranks(&job.Config.Step, nil), 0, d, comm.Imagined{Started: meter.started})
	if err != nil {
		return nil, err
	}
	rank.Heard = func(p health.Phase, _ int64) { meter.phase, meter.unit = p, "" }
	if _, err := job.Rehearse(rank, 1, engine.Observer{Unit: func(name string) { meter.enter(name, d.Arena.Usage().Now[device.Activations]) }}); err != nil {
		return nil, err
	}
	return u, nil
}

// newUnits has a model's kinds of layers, and a layer of each: that of the last layer is last, as multi-token prediction
// repeats it.
func newUnits(m *spec.Model) (u *units, layers []int) {
	u = &units{}
	for i := range slices.Backward(make([]struct{}, m.NumLayers)) {
		if kind := m.KindAt(i); !slices.Contains(u.kinds, kind) {
			u.kinds, layers = append(u.kinds, kind), append(layers, i)
		}
	}
	slices.Reverse(u.kinds)
	slices.Reverse(layers)
	u.layer, u.kept = make([]pass, len(layers)), make([]int64, len(layers))
	return u, layers
}

// meter turns what a device is asked into costs.
type meter struct {
	machine *Machine
	config  *config.Run
	units   *units
	dtype   device.DType
	phase   health.Phase
	unit    string
	before  int64 // activations when it began
}

// enter is where the next unit begins, with so many bytes of activations there.
func (m *meter) enter(unit string, activations int64) {
	if kind := m.layer(); kind >= 0 && m.phase == health.Forward && unit != m.unit {
		m.units.kept[kind] = max(0, activations-m.before)
	}
	if unit != m.unit {
		m.unit, m.before = unit, activations
	}
}

// layer is which of the units' layers is under way; −1: none.
func (m *meter) layer() int {
	number, is := strings.CutPrefix(m.unit, "decoder.layers.")
	kind, err := strconv.Atoi(number)
	if !is || err != nil {
		return -1
	}
	return kind
}

// at is where costs go now; nil: nowhere.
func (m *meter) at() *Cost {
	var p *pass
	switch layer := m.layer(); {
	case m.unit == "embedding":
		p = &m.units.embedding
	case m.unit == "head":
		p = &m.units.head
	case layer >= 0:
		p = &m.units.layer[layer]
	default:
		return nil
	}
	switch m.phase {
	case health.Forward:
		return &p.forward
	case health.Backward:
		return &p.backward
	}
	return nil
}

func (m *meter) ran(a device.Shown) {
	if to := m.at(); to != nil {
		to.add(m.machine.op(a.Op.String(), a.Work, a.V, m.config.Model.KVChannels), 1)
	}
}

// op is what an op takes.
func (m *Machine) op(name string, w device.Work, v device.DType, channels int) (c Cost) {
	c.Ops = m.Launch
	moved := w.Bytes / m.MemoryRate / at(m.Stream, w.Bytes)
	peak, has := m.Peak[v.String()]
	if !has {
		peak = m.Peak["f32"]
	}
	switch {
	case strings.HasPrefix(name, "attention") && w.FLOPs > 0: // a merge of parts only moves
		a, flops := &m.Attention, w.FLOPs
		share := a.Share
		if a.OddMultiple > 0 && channels%a.OddMultiple != 0 && a.OddShare > 0 {
			share = a.OddShare
		}
		if a.Scores {
			flops *= 2 // all pairs, not those that a query may see alone
			pairs := flops / 4 / float64(channels)
			passes := 6.0 // written and read by the products and by the softmax
			if strings.HasSuffix(name, "backward") {
				pairs, passes = pairs/2.5, 8
			}
			c.Move += pairs * passes * float64(v.Size()) / m.MemoryRate / at(m.Stream, pairs)
			c.Ops += 4 * m.Launch
		}
		c.Compute += flops / peak / share
	case strings.Contains(name, "matmul"):
		if compute := w.FLOPs / peak / at(m.Matmul, w.FLOPs); compute > moved {
			c.Compute += compute
		} else {
			c.Move += moved
		}
	default:
		c.Move += moved
	}
	return c
}

func (m *meter) started(p *comm.Membership, c *comm.Collective) {
	if to := m.at(); to != nil {
		to.add(m.machine.collective(p.Members, c), 1)
	}
}

// collective is what ranks of a group take for one.
func (m *Machine) collective(members []int, c *comm.Collective) Cost {
	n := float64(len(members))
	if n < 2 {
		return Cost{}
	}
	bytes, rounds := float64(c.Share().Bytes()), n-1
	switch c.Op {
	case comm.AllReduce:
		bytes *= 2 * (n - 1) / n
		rounds *= 2
	case comm.AllGather, comm.ReduceScatter:
		bytes *= n - 1 // Share is one rank's part
	case comm.AllToAll:
		bytes = sent(c) * (n - 1) / n
	case comm.Exchange: // of a ring: each to its neighbour
		bytes, rounds = sent(c), 1
	}
	return m.travel(members, bytes, rounds)
}

// sent is the bytes of a rank's messages.
func sent(c *comm.Collective) (bytes float64) {
	for i := range c.Transfers {
		if t := &c.Transfers[i]; t.Send && t.T.Given() {
			bytes += float64(t.T.Bytes())
		}
	}
	return bytes
}

// travel is bytes that every member of a group sends on, in so many rounds.
func (m *Machine) travel(members []int, bytes, rounds float64) (c Cost) {
	here := 0
	for _, r := range members {
		if r/m.PerNode == members[0]/m.PerNode {
			here++
		}
	}
	if here == len(members) {
		c.Move = bytes/m.Node.Rate + rounds*m.Node.Latency
		return c
	}
	share := float64(here) / float64(m.PerNode) // as many groups use the node's links at once
	c.Between = bytes/(m.Between.Rate*min(1, share)) + rounds*m.Between.Latency
	return c
}

// count is how many layers are of each kind.
func (u *units) count(m *spec.Model, layers []int) []float64 {
	n := make([]float64, len(u.kinds))
	for _, l := range layers {
		n[slices.Index(u.kinds, m.KindAt(l))]++
	}
	return n
}

package inference

import (
	"sync"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/model"
	"monotron/megatron/spec"
	"monotron/mpu/comm"
	"monotron/mpu/topology"
)

// Layout is how ranks of one process share a model. 0 counts as 1.
type Layout struct{ TP, PP int }

// Ranks is how many there are.
func (l Layout) Ranks() int { return max(1, l.TP) * max(1, l.PP) }

// Run loads the model of dir cut over l's ranks, goroutines of this process with
// a device each, and does work on all of them at once. What work calls of the
// model, it calls on every rank with the same arguments. The error is that of the
// rank that failed first; work's ranks count from 0.
func Run(l Layout, open func() (*device.Device, error), dir string, o LoadOptions, work func(rank int, m *Loaded) error) error {
	n := l.Ranks()
	if n == 1 {
		return alone(open, dir, o, func(m *Loaded) error { return work(0, m) })
	}
	w := comm.NewWorld(n)
	sizes := topology.Sizes{TP: max(1, l.TP), PP: max(1, l.PP), CP: 1, DP: 1, EP: 1}
	var mu sync.Mutex
	var first error // as it is, without the rank's number
	err := w.Run(func(number int) error {
		mine := o
		mine.rank = &rank{w, sizes, number}
		err := alone(open, dir, mine, func(m *Loaded) error { return work(number, m) })
		mu.Lock()
		defer mu.Unlock()
		if err != nil && first == nil {
			first = err
		}
		return err
	})
	if first != nil {
		return first
	}
	return err
}

// alone does one rank's work on a device of its own.
func alone(open func() (*device.Device, error), dir string, o LoadOptions, work func(*Loaded) error) (err error) {
	d, err := open()
	if err != nil {
		return err
	}
	defer d.Close()
	defer device.CatchOutOfMemory(&err)
	m, err := Load(d, dir, o)
	if err != nil {
		return err
	}
	return work(m)
}

// rank is one of several that share a model; nil: the model is whole.
type rank struct {
	world  *comm.World
	sizes  topology.Sizes
	number int
}

// part is what of the model the rank has, and with whom it shares its layers.
// pipeline is nil where it has all of them.
func (r *rank) part(m *spec.Model, d *device.Device) (c model.StageConfig, p model.Parallel, pipeline comm.Group, err error) {
	stage, stages := 0, 1
	p = model.Alone(d)
	if r != nil {
		stage, stages = r.sizes.At(r.number).PP, r.sizes.PP
		if p, pipeline, err = r.groups(m, d); err != nil {
			return c, p, nil, err
		}
		m.PaddedVocabSize = (m.PaddedVocabSize + r.sizes.TP - 1) / r.sizes.TP * r.sizes.TP
	}
	if stages > m.NumLayers {
		return c, p, nil, fault.Errorf(fault.Usage, "--pipeline-model-parallel-size %d: the model has %d layers; each stage needs one", stages, m.NumLayers)
	}
	c = model.StageConfig{Model: m, Embedding: stage == 0, Head: stage == stages-1}
	for i := stage * m.NumLayers / stages; i < (stage+1)*m.NumLayers/stages; i++ {
		c.Layers = append(c.Layers, i)
	}
	return c, p, pipeline, nil
}

func (r *rank) groups(m *spec.Model, d *device.Device) (p model.Parallel, pipeline comm.Group, err error) {
	tp := r.sizes.Group(topology.TP, r.number)
	over := comm.ByHost(r.world, d)
	for _, g := range []struct {
		group   *comm.Group
		name    string
		members []int
	}{
		{&p.TP, "tp", tp},
		{&p.Embedding, "embedding", r.sizes.Group(topology.Embedding, r.number)},
		{&p.QuerySharers, "query-sharers", model.QuerySharers(m, tp, r.sizes.At(r.number).TP)},
		{&pipeline, "pp", r.sizes.Group(topology.PP, r.number)},
	} {
		if g.members == nil {
			continue
		}
		if *g.group, err = over.Group(r.number, g.name, g.members, d); err != nil {
			return p, nil, err
		}
	}
	if pipeline.Size() == 1 {
		pipeline = nil
	}
	return p, pipeline, nil
}

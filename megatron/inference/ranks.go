package inference

import (
	"sync"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/model"
	"monotron/megatron/spec"
	"monotron/mpu/comm"
	"monotron/mpu/ranks"
	"monotron/mpu/topology"
)

// Layout is how ranks of one process share a model. 0 counts as 1.
type Layout struct {
	TP, PP int
	CP     int // ranks that share the positions of a prompt; what follows each of them computes
	EP     int // ranks that share the experts: those of TP, each with as many parts of an expert as are over, or more
}

// Ranks is how many there are: with more for the experts than for the tensors, the rest of
// the model is there several times, and does the same.
func (l Layout) Ranks() int { return l.sizes().World() }

func (l Layout) sizes() topology.Sizes {
	s := topology.Sizes{TP: max(1, l.TP), PP: max(1, l.PP), CP: max(1, l.CP), DP: 1, EP: max(1, l.EP)}
	if s.ETP = s.TP / s.EP; s.ETP == 0 {
		s.ETP, s.DP = 1, s.EP/s.TP
	}
	return s
}

// check refuses experts that cannot be shared so.
func (l Layout) check() error {
	switch tp, ep := max(1, l.TP), max(1, l.EP); {
	case tp%ep != 0 && ep%tp != 0:
		return exitcode.Errorf(exitcode.Usage, "--expert-model-parallel-size %d and --tensor-model-parallel-size %d: one of them must divide the other", ep, tp)
	case l.CP > 1 && ep > tp:
		return exitcode.Errorf(exitcode.Usage, "--context-parallel-size %d needs --expert-model-parallel-size of at most --tensor-model-parallel-size %d: the tensor-parallel ranks of each part of a prompt need all experts; use --expert-model-parallel-size %d", l.CP, tp, tp)
	}
	return nil
}

// Run loads the model of dir cut over l's ranks, goroutines of this process with
// a device each, and does work on all of them at once. What work calls of the
// model, it calls on every rank with the same arguments. The error is that of the
// rank that failed first; work's ranks count from 0.
func Run(l Layout, open func() (*device.Device, error), dir string, o LoadOptions, work func(rank int, m *Loaded) error) error {
	return runOn(l, ranks.Config{Open: open}, dir, o, work)
}

// runOn is Run where `at` says how the ranks reach each other.
func runOn(l Layout, at ranks.Config, dir string, o LoadOptions, work func(rank int, m *Loaded) error) error {
	if err := l.check(); err != nil {
		return err
	}
	at.Sizes = l.sizes()
	if at.Process != nil { // which names the rank that failed first
		return ranks.Run(at, func(r *ranks.Rank) error { return loaded(r, dir, o, work) })
	}
	var failed sync.Once
	var first error // as it is, without the rank's number
	err := ranks.Run(at, func(r *ranks.Rank) error {
		err := loaded(r, dir, o, work)
		if err != nil {
			failed.Do(func() { first = err })
		}
		return err
	})
	if first != nil {
		return first
	}
	return err
}

// loaded does one rank's work on its part of the model.
func loaded(r *ranks.Rank, dir string, o LoadOptions, work func(rank int, m *Loaded) error) (err error) {
	defer device.CatchOutOfMemory(&err)
	o.rank = r
	m, err := Load(r.Device, dir, o)
	if err == nil && o.Adapter != "" {
		m, err = m.with(o.Adapter)
	}
	if err != nil {
		return err
	}
	return work(r.Number, m)
}

// part is what of the model a rank has, and with whom it shares its layers.
// pipeline is nil where it has all of them.
func part(r *ranks.Rank, m *spec.Model) (c model.StageConfig, p model.Parallel, pipeline *comm.Group, err error) {
	r.Sizes.QueryGroups = m.NumQueryGroups
	if err = r.Join(topology.TP, topology.PP, topology.Embedding, topology.QuerySharers, topology.TPEP); err != nil {
		return c, p, nil, err
	}
	// Contiguous layers for each stage, the embedding on the first, the head on the last; rows of the vocabulary are
	// padded so that ranks have equally many.
	stage, stages := r.Coordinates.PP, r.Sizes.PP
	if stages > m.NumLayers {
		return c, p, nil, exitcode.Errorf(exitcode.Usage, "--pipeline-model-parallel-size %d: the model has only %d layers, and each stage needs at least one", stages, m.NumLayers)
	}
	m.PaddedVocabSize = (m.PaddedVocabSize + r.Sizes.TP - 1) / r.Sizes.TP * r.Sizes.TP
	c = model.StageConfig{Model: m, Embedding: stage == 0, Head: stage == stages-1}
	for i := stage * m.NumLayers / stages; i < (stage+1)*m.NumLayers/stages; i++ {
		c.Layers = append(c.Layers, i)
	}
	if stages > 1 {
		pipeline = r.Groups[topology.PP]
	}
	// Ranks that share a prompt: layers with a state would need each other's.
	if r.Sizes.CP > 1 {
		if m.KeepsState() {
			return c, p, nil, exitcode.Errorf(exitcode.Usage, "--context-parallel-size %d: ranks cannot share a prompt of a model whose layers keep a state (linear attention, convolutions, state-space scans); use 1", r.Sizes.CP)
		}
		if err = r.Join(topology.CP); err != nil {
			return c, p, nil, err
		}
	}
	// ByRow: a sequence's bits do not depend on what it is computed with.
	p = model.Parallel{ByRow: true, TP: r.Groups[topology.TP], Embedding: r.Groups[topology.Embedding], QuerySharers: r.Groups[topology.QuerySharers], Context: r.Groups[topology.CP]}
	switch ep := r.Sizes.EP; { // every rank sends all tokens
	case m.Experts == nil && ep > 1:
		return c, p, nil, exitcode.Errorf(exitcode.Usage, "--expert-model-parallel-size %d: the model has no experts", ep)
	case m.Experts != nil && m.Experts.Num%ep != 0:
		return c, p, nil, exitcode.Errorf(exitcode.Usage, "--expert-model-parallel-size %d must divide the %d experts of the model; use another size", ep, m.Experts.Num)
	case m.Experts != nil:
		p.Experts, p.ExpertParts = r.Groups[topology.TPEP], r.Sizes.ExpertTP()
	}
	return c, p, pipeline, nil
}

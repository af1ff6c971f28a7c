package plan

import (
	"monotron/megatron/config"
	"monotron/megatron/optimizer"
	"monotron/megatron/schedule"
	"monotron/mpu/topology"
)

// Seconds is what a step takes.
type Seconds struct {
	Step, Low, High float64 // the interval is the error of runs that could be compared
	Compute         float64 // of it, on the busiest stage: products and attention
	Move            float64 // ops that wait for memory, and exchanges inside a node
	Between         float64 // exchanges between nodes: tensor and expert parallelism, sends where they block
	Waiting         float64 // for other stages
	Gradients       float64 // of data parallelism, that nothing hides
	Update          float64
	TFLOPs          float64 // a device, as the log line prints it
	MFU             float64
}

// nominal takes a machine at its word.
var nominal = Constants{1, 1, 1}

// Clock is a run on a machine, ready to be asked for seconds under any constants.
type Clock struct {
	config  config.Run
	machine *Machine
	stages  [][][2]Cost // [stage][chunk]: forward, backward
	send    Cost        // of a value between stages
	grads   Cost        // of the busiest stage
	hidden  bool        // behind the last backward
	update  Cost
	micros  int
	most    float64    // parameters of the rank that has most
	least   parameters // of the first stage's layers: that it has at least
	units   *units     // of each part of the model; nil: a rank does not have a device of its own
	book    *schedule.Programs
	parts   [][]schedule.Part
	shared  *sharing // nil: a rank has a device of its own
}

// ProgramMemory is memory of the rows' own program in addition to this one's tensors, by the machine file.
func (k *Clock) ProgramMemory(regime string) int64 {
	h := k.machine.ProgramMemory[regime]
	return int64(h.Bytes) + int64(h.PerParameter*k.most)
}

// NewClock counts what a micro-batch takes on each stage. The vocabulary is set.
func NewClock(c config.Run, m *Machine) (*Clock, error) {
	if m.Threads > 0 {
		s, err := share(c, m)
		return &Clock{config: c, machine: m, shared: s}, err
	}
	u, err := unitsOf(c, m, m.Device)
	if err != nil {
		return nil, err
	}
	return clockOf(c, m, u, &schedule.Programs{})
}

// clockOf joins units to stages.
func clockOf(c config.Run, m *Machine, u *units, book *schedule.Programs) (*Clock, error) {
	parts, err := c.Split().Parts()
	if err != nil {
		return nil, err
	}
	l := c.Layout.Sizes()
	k := &Clock{config: c, machine: m, micros: c.GlobalBatchSize / max(1, c.MicroBatchSize*l.DP), hidden: c.Layout.OverlapGradReduce, book: book, units: u, parts: parts}
	for _, stage := range parts {
		var chunks [][2]Cost
		for _, part := range stage {
			chunks = append(chunks, u.of(&c, part))
		}
		k.stages = append(k.stages, chunks)
	}
	k.send = m.between(&c, l)
	k.reduce(parts, l)
	return k, nil
}

// of is a part's forward and backward.
func (u *units) of(c *config.Run, part schedule.Part) (cost [2]Cost) {
	add := func(p pass, times float64) {
		cost[0].add(p.forward, times)
		cost[1].add(p.backward, times)
	}
	for kind, n := range u.count(&c.Model, part.Layers) {
		add(u.layer[kind], n)
	}
	if part.Embedding {
		add(u.embedding, 1)
	}
	if part.Head {
		add(u.head, 1)
	}
	return cost
}

// between is a hidden tensor's way to the next stage; devices of a node send at the same time.
func (m *Machine) between(c *config.Run, l topology.Sizes) Cost {
	if l.PP == 1 {
		return Cost{}
	}
	size := 2.0
	if c.Precision == config.F32 {
		size = 4
	}
	bytes := float64(c.MicroBatchSize*c.SeqLength*c.Model.HiddenSize) * size / float64(l.CP)
	var cost Cost
	if c.Layout.SequenceParallel || m.Sends.Sliced {
		bytes /= float64(l.TP)
	}
	if m.Sends.Sliced && !c.Layout.SequenceParallel && l.TP > 1 {
		n := float64(l.TP - 1)
		cost = m.travel(l.Group(topology.TP, 0), n*bytes, n)
	}
	next := l.Group(topology.PP, 0)[1]
	if next/m.PerNode == 0 {
		cost.add(Cost{Move: bytes/m.Node.Rate + m.Node.Latency}, 1)
	} else {
		cost.add(Cost{Between: bytes/(m.Between.Rate/float64(m.PerNode)) + m.Between.Latency}, 1)
	}
	return cost
}

// updateBytes pass through memory for each parameter that a rank updates: its gradient three
// times (zeroed, measured, used), main parameter and moments read and written, the value written.
const updateBytes = 3*4 + 6*4 + 2

// parameters is the number of parameters of a rank: those that every rank of a stage has, and its experts' own.
type parameters struct{ dense, experts float64 }

func (h parameters) all() float64 { return h.dense + h.experts }

// memoryOf is what a rank of a stage holds; layers alone: without embedding and head.
func memoryOf(c *config.Run, stage []schedule.Part, l topology.Sizes, layersAlone bool) (h parameters) {
	for _, part := range stage {
		for _, layer := range part.Layers {
			experts := c.Model.ExpertParameters(layer)
			h.dense += float64(c.Model.LayerParameters(layer)-experts) / float64(l.TP)
			h.experts += float64(experts) / float64(l.EP*l.ExpertTP())
		}
		if (part.Embedding || part.Head) && !layersAlone {
			h.dense += float64(c.Model.PaddedVocabSize*c.Model.HiddenSize) / float64(l.TP)
		}
	}
	return h
}

// reduce counts gradients, parameters and update of the stage that has most.
func (k *Clock) reduce(parts [][]schedule.Part, l topology.Sizes) {
	most := parameters{}
	for _, stage := range parts {
		if h := memoryOf(&k.config, stage, l, false); h.all() > most.all() {
			most = h
		}
	}
	k.most, k.least = most.all(), memoryOf(&k.config, parts[0], l, true)
	c, m := &k.config, k.machine
	strategy := optimizer.Strategy(c.Layout.Sharding)
	sharded := c.Layout.DistributedOptimizer || strategy != "" && strategy != optimizer.NoShard
	updated := most.all()
	if sharded {
		updated = most.dense/float64(l.DP*l.CP) + most.experts/float64(l.ExpertDP())
	}
	k.update = Cost{Move: updated * updateBytes / m.MemoryRate / at(m.Stream, updated*updateBytes), Ops: m.Launch}
	for _, x := range []struct {
		kind topology.Kind
		n    float64
	}{{topology.DPCP, most.dense}, {topology.ExpertDP, most.experts}} {
		if x.n > 0 {
			k.exchange(l.Group(x.kind, 0), x.n, sharded, strategy)
		}
	}
}

// exchange adds what ranks that have the same parameters send each other in a step.
func (k *Clock) exchange(group []int, parameters float64, sharded bool, strategy optimizer.Strategy) {
	n, m := float64(len(group)), k.machine
	if n < 2 {
		return
	}
	width, value := float64(m.GradientBytes), 2.0
	if width == 0 {
		width = 4
	}
	if k.config.Precision == config.F32 {
		value = 4
	}
	rounds, part := n-1, (n-1)/n*parameters
	if !sharded {
		k.grads.add(m.travel(group, 2*part*width, 2*rounds), 1)
		return
	}
	gradients, values := 1.0, 1.0 // how often in a step
	switch strategy {
	case optimizer.OptimGrads:
		gradients = float64(k.micros)
	case optimizer.OptimGradsParams: // for the forward and once more for the backward
		gradients, values = float64(k.micros), 2*float64(k.micros)
	}
	k.grads.add(m.travel(group, part*width, rounds), gradients)
	k.grads.add(m.travel(group, part*value, rounds), values)
}

// times are the schedule's under constants.
func (k *Clock) times(by Constants) schedule.Times {
	send := k.send.seconds(nominal)
	t := schedule.Times{Transfer: send}
	if k.machine.Sends.Blocking {
		t.Transfer = 0 // it is in what both ends do
	}
	for stage, chunks := range k.stages {
		var f, b []float64
		for chunk, c := range chunks {
			blocked := send * k.blocked(stage, chunk)
			f, b = append(f, c[0].seconds(by)+blocked), append(b, c[1].seconds(by)+blocked)
		}
		t.Forward, t.Backward = append(t.Forward, f), append(t.Backward, b)
	}
	return t
}

// blocked is how many values a chunk waits for or sends, each way, while it cannot compute.
func (k *Clock) blocked(stage, chunk int) (values float64) {
	if !k.machine.Sends.Blocking {
		return 0
	}
	part := &k.parts[stage][chunk]
	if !part.Embedding {
		values++
	}
	if !part.Head {
		values++
	}
	return values
}

// after is what follows the pipeline: gradients that nothing hides, and the update.
func (k *Clock) after(by Constants, lastBackward float64) (gradients, update float64) {
	gradients = k.grads.seconds(by)
	if k.hidden {
		gradients = max(gradients-lastBackward, gradients/10)
	}
	return gradients, k.update.seconds(by)
}

// about is the step with a pipeline of few micro-batches where later ones repeat them; the
// error is Run's.
func (k *Clock) about(by Constants) (float64, error) {
	s, err := k.run(by, k.book.About)
	if err != nil {
		return 0, err
	}
	return s.Step, nil
}

// Run is the step, the run's own schedule carried out on the clock.
func (k *Clock) Run(by Constants) (*Seconds, error) {
	return k.run(by, func(c schedule.Config, t schedule.Times) (float64, error) {
		p, err := k.book.Of(c)
		if err != nil {
			return 0, err
		}
		return p.Seconds(t), nil
	})
}

// run is the step with a pipeline that ends when its schedule does.
func (k *Clock) run(by Constants, ends func(schedule.Config, schedule.Times) (float64, error)) (*Seconds, error) {
	if k.shared != nil {
		s, _ := k.shared.run()
		k.rates(s)
		return s, nil
	}
	// The pipeline's end, by the times of a micro-batch on every stage and chunk.
	t := k.times(by)
	end, err := ends(k.config.PipelineSchedule(k.micros, false), t)
	if err != nil {
		return nil, err
	}
	// The stage with most work; the others wait for it.
	s, busiest, busy, back := &Seconds{}, 0, 0.0, 0.0
	for stage := range k.stages {
		one, b := 0.0, 0.0
		for chunk := range k.stages[stage] {
			one, b = one+t.Forward[stage][chunk]+t.Backward[stage][chunk], b+t.Backward[stage][chunk]
		}
		if one *= float64(k.micros); one > busy {
			busiest, busy, back = stage, one, b
		}
	}
	// Its seconds by cause: computing, moving data on the host, between hosts; the rest of the step is waiting.
	for chunk, c := range k.stages[busiest] {
		sends := 2 * k.blocked(busiest, chunk) * float64(k.micros)
		s.Move, s.Between = s.Move+sends*k.send.Move, s.Between+sends*k.send.Between
		for _, side := range c {
			s.Compute += by.Compute * side.Compute * float64(k.micros)
			s.Move += by.Move * (side.Move + side.Ops) * float64(k.micros)
			s.Between += by.Between * side.Between * float64(k.micros)
		}
	}
	s.Waiting = max(0, end-busy) // sums in another order
	// Reducing gradients, as far as backward does not hide it, and the update.
	s.Gradients, s.Update = k.after(by, back)
	s.Step = end + s.Gradients + s.Update
	k.rates(s)
	return s, nil
}

// Timeline is every forward and backward of the step.
func (k *Clock) Timeline(by Constants) (*schedule.Timeline, error) {
	if k.shared != nil {
		_, line := k.shared.run()
		return line, nil
	}
	p, err := k.book.Of(k.config.PipelineSchedule(k.micros, false))
	if err != nil {
		return nil, err
	}
	return p.Run(k.times(by))
}

// rates are what follows from the seconds.
func (k *Clock) rates(s *Seconds) {
	m := k.machine
	s.Low, s.High = s.Step*(1-min(0.9, m.Checked.Worst)), s.Step*(1+m.Checked.Worst)
	flops := k.config.Model.FLOPs(k.config.GlobalBatchSize, k.config.SeqLength) / float64(k.config.Layout.Sizes().World())
	s.TFLOPs = flops / s.Step / 1e12
	if peak := m.Peak[k.config.DType().String()]; peak > 0 {
		s.MFU = flops / s.Step / peak
	}
}

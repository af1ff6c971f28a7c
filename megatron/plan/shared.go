package plan

import (
	"math"

	"monotron/csrc/device"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/schedule"
	"monotron/megatron/training"
	"monotron/mpu/comm"
	"monotron/mpu/health"
	"monotron/mpu/ranks"
	"monotron/mpu/topology"
)

// load is work of one rank on a machine whose ranks share its threads, in seconds.
type load struct {
	alone float64 // its ops with all threads
	one   float64 // its ops on one thread, others at work on the other threads
	many  float64 // the same, with more ranks than threads
	wait  float64 // its collectives while nobody else computes
	carry float64 // of one thread, its collectives while others compute
}

func (l *load) add(m load, times float64) {
	l.alone += times * m.alone
	l.one += times * m.one
	l.many += times * m.many
	l.wait += times * m.wait
	l.carry += times * m.carry
}

// crowd is ranks that continue together, as those of a tensor-parallel group do, while others compute.
type crowd struct {
	threads float64
	groups  float64 // that compute at the same time
	ranks   float64 // of a group
}

// seconds a group takes for its load.
func (c crowd) seconds(l load) float64 {
	all := c.groups * c.ranks
	ops := l.one
	if all > c.threads {
		ops = l.many
	}
	if c.threads > 1 && all < c.threads { // each has more than one thread
		ops *= math.Pow(l.alone/l.one, math.Log(c.threads/all)/math.Log(c.threads))
	}
	if l.one == 0 {
		ops = 0
	}
	if c.groups == 1 {
		return ops*max(1, all/c.threads) + l.wait
	}
	return max(ops+l.wait, (ops+l.carry)*all/c.threads)
}

// sharing is a run on such a machine: what a rank of each stage does in a step.
type sharing struct {
	sizes   topology.Sizes
	threads float64
	program *schedule.Program
	stages  []stageLoad
	send    float64 // seconds of a value between stages
}

// stageLoad is a rank's step: of each chunk a micro-batch's forward and backward, and what
// comes before and behind them.
type stageLoad struct {
	forward, backward []load
	rest              load
}

// mostMicros bounds how many micro-batches are counted; others are like them.
const mostMicros = 32

// share counts a step of one rank of each stage, op by op.
func share(c config.Run, m *Machine) (*sharing, error) {
	l := c.Layout.Sizes()
	// The order of a stage's actions.
	all := c.GlobalBatchSize / max(1, c.MicroBatchSize*l.DP)
	program, err := schedule.Compile(c.PipelineSchedule(all, false))
	if err != nil {
		return nil, err
	}
	s := &sharing{sizes: l, threads: float64(m.Threads), program: program, stages: make([]stageLoad, l.PP)}
	// Few micro-batches are enough: later ones repeat them. A multiple of the stages keeps the interleaved order.
	counted := all
	if fewer := max(enough(&c), mostMicros/(l.PP*program.Config.Chunks)*l.PP); all > fewer && all%l.PP == fewer%l.PP {
		counted = fewer
	}
	job, err := training.Rehearsal(c, counted)
	if err != nil {
		return nil, err
	}
	// One rank of each stage, all at once.
	slots := make([]int, l.PP)
	for i := range slots {
		slots[i] = i
	}
	err = each(slots, func(stage int) (err error) {
		s.stages[stage], err = stageLoadOf(job, m, l.Rank(topology.Coordinates{PP: stage}), counted, program.Config.Chunks)
		return err
	})
	// What a stage sends to the next: activations [seq, batch, hidden] of this rank's tokens.
	if l.PP > 1 {
		value := 2.0
		if c.Precision == config.F32 {
			value = 4
		}
		bytes := value * float64(c.MicroBatchSize*c.SeqLength*c.Model.HiddenSize) / float64(l.CP)
		if c.Layout.SequenceParallel {
			bytes /= float64(l.TP)
		}
		s.send, _ = m.measured.collective(comm.Exchange.String(), "", 2, bytes)
	}
	return s, err
}

// stageLoadOf rehearses two steps of a rank; the second one counts.
func stageLoadOf(job *training.Job, m *Machine, number, micros, chunks int) (stageLoad, error) {
	w := &shareMeter{machine: m, into: stageLoad{forward: make([]load, chunks), backward: make([]load, chunks)}}
	d := device.Counting(m.Device, nil, device.Watching{Ran: w.ran})
	defer d.Close()
	rank, err := ranks.Imagine(engine.Ranks(&job.Config.Step, nil), number, d, comm.Imagined{Started: w.started})
	if err != nil {
		return w.into, err
	}
	rank.Heard = w.heard
	if _, err := job.Rehearse(rank, 2, w.observe()); err != nil {
		return w.into, err
	}
	for chunk := range chunks {
		for _, side := range []*load{&w.into.forward[chunk], &w.into.backward[chunk]} {
			sum := *side
			*side = load{}
			side.add(sum, 1/float64(micros))
		}
	}
	return w.into, nil
}

// shareMeter turns what a rank asks for into loads.
type shareMeter struct {
	machine *Machine
	into    stageLoad
	phase   health.Phase
	step    int64
	chunk   int

	since    float64 // seconds of ops since the last meeting
	meetings float64
}

func (w *shareMeter) heard(p health.Phase, step int64) { w.phase, w.step = p, step }

func (w *shareMeter) observe() engine.Observer {
	return engine.Observer{Micro: func(_, chunk int) { w.chunk = chunk }}
}

// at is where loads go now; nil: nowhere.
func (w *shareMeter) at() *load {
	switch {
	case w.step != 2 || w.phase == health.Eval || w.phase == health.Startup:
		return nil
	case w.phase == health.Forward:
		return &w.into.forward[w.chunk]
	case w.phase == health.Backward:
		return &w.into.backward[w.chunk]
	}
	return &w.into.rest
}

func (w *shareMeter) ran(a device.Shown) {
	if to := w.at(); to != nil {
		s, begin := w.machine.measuredOp(&a), w.machine.Launch
		to.add(load{alone: s.alone + begin, one: s.one + begin, many: s.many + begin}, 1)
		w.since += s.one + begin
	}
}

func (w *shareMeter) started(p *comm.Membership, c *comm.Collective) {
	to := w.at()
	if to == nil || p.Size() < 2 || c.Op == comm.Exchange && p.Name == string(topology.PP) { // the schedule has those between stages
		return
	}
	t, op := c.Share(), c.Op
	bytes, dtype := 0.0, ""
	if t.Given() {
		bytes, dtype = float64(t.Bytes()), t.DType.String()
	}
	size := p.Size()
	switch op {
	case comm.AllToAll:
		op, bytes = comm.AllGather, sent(c)/float64(size) // as many copies of such a size
	case comm.Exchange:
		bytes, size = sent(c), 2
	}
	x := w.machine.measured
	wait, carry := x.collective(op.String(), dtype, size, bytes)
	to.add(load{wait: wait + x.meeting(p.Size(), false).after(w.since), carry: carry + x.meeting(p.Size(), true).after(w.since)}, 1)
	w.since = 0
	w.meetings++
}

// walk is a program's forwards and backwards on the clock.
func (s *sharing) walk(p *schedule.Program) *schedule.Timeline {
	inside := s.sizes.World() / s.sizes.PP / s.sizes.DP // ranks that continue together
	apart := float64(s.sizes.DP)
	return p.Share(func(stage int, kind schedule.Kind, chunk, active int) float64 {
		l := s.stages[stage].forward[chunk]
		if kind == schedule.Backward {
			l = s.stages[stage].backward[chunk]
		}
		return crowd{s.threads, float64(active) * apart, float64(inside)}.seconds(l)
	}, s.send)
}

// run is the step on the clock.
func (s *sharing) run() (*Seconds, *schedule.Timeline) {
	line, out := s.walk(s.program), &Seconds{}
	busiest := 0
	for stage := range s.stages {
		if line.Busy(stage) > line.Busy(busiest) {
			busiest = stage
		}
	}
	everybody := crowd{s.threads, float64(s.sizes.PP), float64(s.sizes.World() / s.sizes.PP)}
	mean := load{}
	for i := range s.stages {
		mean.add(s.stages[i].rest, 1/float64(len(s.stages)))
		end := crowd{s.threads, 1, everybody.ranks}.seconds(s.stages[i].rest) // were it alone
		out.Update = max(out.Update, end)
	}
	out.Update = max(out.Update, everybody.seconds(mean))
	out.Compute, out.Waiting = line.Busy(busiest), line.Idle(busiest)
	out.Step = line.End + out.Update
	return out, line
}

package bench

import (
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/optimizer"
	"monotron/mpu/ranks"
)

const (
	fewest   = 3 // steps, where nobody says how many
	warmUp   = 3 // steps that do not count with graphs, which are there behind the second; without: 1
	dataSeed = 1234
)

// opSum is what one op at one shape took in all timed steps.
type opSum struct {
	Op      string  `json:"op"`
	Shape   string  `json:"shape"`
	Calls   float64 `json:"calls_per_step"`
	Seconds float64 `json:"seconds_per_step"` // mean over the steps
	Share   float64 `json:"share"`            // of the step
	FLOPs   float64 `json:"flops_per_second,omitempty"`
	Bytes   float64 `json:"bytes_per_second,omitempty"`
	Warm    float64 `json:"seconds_from_caches,omitempty"` // a step, with all data in the caches; not of products
	OfBound float64 `json:"fraction_of_bound,omitempty"`   // the larger of that and of the time to copy the bytes, over seconds
}

// oneStep is the time of one step and its parts.
type oneStep struct{ data, forward, backward, optimizer, total time.Duration }

// train builds the model, trains, and fills in what was seen.
func (r *result) train(d *device.Device, o options, enough time.Duration) error {
	e, err := engineOf(ranks.Alone(d), configOf(o))
	if err != nil {
		return err
	}
	if o.graphs {
		if why := e.Capture(); why != "" {
			return exitcode.Errorf(exitcode.Usage, "no CUDA graphs: %s", why)
		}
	}
	ops := tally{}
	r.onHost = d.OnHost()
	watch := func() { d.Observe = ops.add }
	defer func() { d.Observe = nil }()
	begin := watch
	if !r.onHost { // there an observer waits for every op: other steps tell of ops
		begin = func() {}
	}
	steps, busy, err := r.steps(e, o, enough, begin)
	if err != nil {
		return err
	}
	total := medianOf(steps, func(s oneStep) time.Duration { return s.total })
	r.Steps, r.StepSeconds, r.Busy = len(steps), total, busy
	r.FastestStep = slices.MinFunc(steps, func(a, b oneStep) int { return int(a.total - b.total) }).total.Seconds()
	r.Phases = phases{
		Data:      medianOf(steps, func(s oneStep) time.Duration { return s.data }),
		Forward:   medianOf(steps, func(s oneStep) time.Duration { return s.forward }),
		Backward:  medianOf(steps, func(s oneStep) time.Duration { return s.backward }),
		Optimizer: medianOf(steps, func(s oneStep) time.Duration { return s.optimizer }),
		Other:     medianOf(steps, func(s oneStep) time.Duration { return s.total - s.data - s.forward - s.backward - s.optimizer }),
	}
	tokens := float64(o.batch * o.seq)
	r.FLOPsPerToken = o.model.FLOPs(o.batch, o.seq) / tokens
	r.TokensPerSecond = tokens / total
	use := d.Arena.Usage()
	r.ArenaPeak, r.Arena = use.Max, memory{}
	for p := range device.Purposes {
		r.Arena[p.String()] = use.Peak[p]
	}
	for _, line := range e.GraphNews() {
		r.Graphs = line
	}
	if !r.onHost && r.watch {
		o.steps = fewest
		if steps, _, err = r.steps(e, o, 0, watch); err != nil {
			return err
		}
	}
	r.Ops = ops.sums(steps)
	return r.bounds(d, e, o)
}

// bounds sees in a step of its own how long ops take with their data in the caches.
func (r *result) bounds(d *device.Device, e *engine.Engine, o options) error {
	if !r.onHost || !r.watch {
		return nil
	}
	r.warm = warmth{}
	d.Observe = r.warm.add
	_, err := e.Step([]*engine.Micro{randomTokens(rand.New(rand.NewPCG(dataSeed, 1)), o)})
	return err
}

// configOf is set as for a run of gpt2: AdamW, clipping by 1, weight decay 0.1.
func configOf(o options) config.Run {
	return config.Run{
		Step: config.Step{Model: o.model, Precision: o.precision, SeqLength: o.seq, Seed: dataSeed, CheckForNaN: true,
			Optimizer: optimizer.Config{Kind: optimizer.Adam, LR: 1e-4, MinLR: 1e-5, AdamBeta1: 0.9, AdamBeta2: 0.95, AdamEps: 1e-8, ClipGrad: 1,
				WeightDecay: 0.1, WeightDecayIncrStyle: optimizer.DecayConstant, DecayStyle: optimizer.DecayCosine,
				InitialLossScale: 65536, MinLossScale: 1, LossScaleWindow: 1000, LossHysteresis: 2}},
		MicroBatchSize: o.batch, GlobalBatchSize: o.batch, TrainIters: 1000, VocabDivisor: 128, Graphs: o.graphs,
	}
}

// engineOf is the model with its optimizer, from the seed.
func engineOf(r *ranks.Rank, c config.Run) (*engine.Engine, error) {
	e, err := unfilled(r, c)
	if err != nil {
		return nil, err
	}
	return e, e.Initialize()
}

// unfilled is an engine whose parameters have yet to be given values.
func unfilled(r *ranks.Rank, c config.Run) (*engine.Engine, error) {
	schedule, err := c.Optimizer.Schedule(c.TrainIters, 0, c.GlobalBatchSize)
	if err != nil {
		return nil, err
	}
	e, err := engine.New(r, c.Step, schedule)
	if err != nil {
		return nil, err
	}
	if r.Device.IsGPU() {
		err = e.ChooseAttention(engine.MicroShapes{Batches: []int64{int64(c.MicroBatchSize)}}, logging.Stderr().From("bench").Info)
	}
	return e, err
}

// steps trains; begin is called before the first step that counts. busy is the
// share of the threads' time that this process had a processor.
func (r *result) steps(e *engine.Engine, o options, enough time.Duration, begin func()) (steps []oneStep, busy float64, err error) {
	random := rand.New(rand.NewPCG(dataSeed, 0))
	var start time.Time
	var used, wall time.Duration
	warm := warmUp
	if !o.graphs {
		warm = 1
	}
	// Steps that warm up, then as many as were asked for, or as take long enough.
	for n := 0; n < warm || !done(o.steps, n-warm, time.Since(start) > enough); n++ {
		if n == warm {
			begin()
			r.seen.start()
			start = time.Now()
		}
		began, spent := time.Now(), processorTime()
		micro := randomTokens(random, o)
		s := oneStep{data: time.Since(began)}
		told, err := e.Step([]*engine.Micro{micro})
		if err != nil {
			return nil, 0, err
		}
		// The engine's own times of its phases.
		s.total = time.Since(began)
		s.forward, s.backward, s.optimizer = told.Forward, told.Backward, told.UpdateFor
		r.Loss = told.Loss
		if n >= warm {
			steps = append(steps, s)
			used, wall = used+processorTime()-spent, wall+s.total
			r.seen.between()
		}
	}
	return steps, used.Seconds() / (wall.Seconds() * float64(r.Threads)), nil
}

// done tells whether n timed steps are what was asked for, or enough.
func done(asked, n int, enough bool) bool {
	if asked > 0 {
		return n >= asked
	}
	return n >= fewest && enough
}

// randomTokens is a micro-batch in the form that the data path gives.
func randomTokens(random *rand.Rand, o options) *engine.Micro {
	m := &engine.Micro{}
	for j := range o.batch {
		row, mask, positions := make([]int32, o.seq+1), make([]float32, o.seq), make([]int32, o.seq)
		for i := range row {
			row[i] = random.Int32N(int32(o.model.VocabSize))
		}
		for i := range mask {
			mask[i], positions[i] = 1, int32(i)
		}
		m.Tokens, m.Labels = append(m.Tokens, row[:o.seq]), append(m.Labels, row[1:])
		m.LossMask, m.PositionIDs = append(m.LossMask, mask), append(m.PositionIDs, positions)
		m.Samples = append(m.Samples, int32(j))
	}
	return m
}

// medianOf the steps' times, in seconds.
func medianOf(steps []oneStep, of func(oneStep) time.Duration) float64 {
	var all []time.Duration
	for _, s := range steps {
		all = append(all, of(s))
	}
	slices.Sort(all)
	middle := len(all) / 2
	if len(all)%2 == 0 {
		return (all[middle-1] + all[middle]).Seconds() / 2
	}
	return all[middle].Seconds()
}

// tally sums calls by op and shape.
type tally map[[2]string]*opTotal

type opTotal struct {
	device.Work
	calls int
	took  time.Duration
}

func (t tally) add(c device.Call) {
	key := [2]string{c.Op.String(), c.Shape}
	sum := t[key]
	if sum == nil {
		sum = &opTotal{}
		t[key] = sum
	}
	sum.calls++
	sum.took += c.Took
	sum.FLOPs += c.FLOPs
	sum.Bytes += c.Bytes
}

// sums are the ops, the longest first.
func (t tally) sums(steps []oneStep) []opSum {
	all := time.Duration(0)
	for _, s := range steps {
		all += s.total
	}
	var list []opSum
	for key, c := range t {
		n := float64(len(steps))
		list = append(list, opSum{Op: key[0], Shape: key[1], Calls: float64(c.calls) / n, Seconds: c.took.Seconds() / n,
			Share: c.took.Seconds() / all.Seconds(), FLOPs: c.FLOPs / c.took.Seconds(), Bytes: c.Bytes / c.took.Seconds()})
	}
	sort.Slice(list, func(a, b int) bool { return list[a].Seconds > list[b].Seconds })
	return list
}

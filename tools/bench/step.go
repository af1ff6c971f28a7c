package bench

import (
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/mpu/ranks"
	"monotron/tools/internal/timing"
)

const (
	fewest = 3 // steps, where nobody says how many
	warmUp = 3 // steps that do not count with graphs, which are there behind the second; without: 1
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
	e, err := engineOf(ranks.Alone(d), timing.Config(o.shape()))
	if err != nil {
		return err
	}
	if o.graphs {
		if why := e.Capture(); why != "" {
			return exitcode.Errorf(exitcode.Usage, "--cuda-graph-impl local: CUDA graphs cannot be used: %s", why)
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
	_, err := e.Step([]*engine.Micro{timing.RandomTokens(rand.New(rand.NewPCG(timing.Seed, 1)), o.shape())})
	return err
}

// engineOf is the model with its optimizer, from the seed.
func engineOf(r *ranks.Rank, c config.Run) (*engine.Engine, error) {
	e, err := timing.NewEngine(r, c)
	if err != nil {
		return nil, err
	}
	return e, e.Initialize()
}

// steps trains; begin is called before the first step that counts. busy is the
// share of the threads' time that this process had a processor.
func (r *result) steps(e *engine.Engine, o options, enough time.Duration, begin func()) (steps []oneStep, busy float64, err error) {
	random := rand.New(rand.NewPCG(timing.Seed, 0))
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
		micro := timing.RandomTokens(random, o.shape())
		s := oneStep{data: time.Since(began)}
		trained, err := e.Step([]*engine.Micro{micro})
		if err != nil {
			return nil, 0, err
		}
		// The engine's own times of its phases.
		s.total = time.Since(began)
		s.forward, s.backward, s.optimizer = trained.Forward, trained.Backward, trained.UpdateFor
		r.Loss = trained.Loss
		if n >= warm {
			steps = append(steps, s)
			used, wall = used+processorTime()-spent, wall+s.total
			r.seen.between()
		}
	}
	return steps, used.Seconds() / (wall.Seconds() * float64(r.Threads)), nil
}

// done reports whether n timed steps are what was asked for, or enough.
func done(asked, n int, enough bool) bool {
	if asked > 0 {
		return n >= asked
	}
	return n >= fewest && enough
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

package plan

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"

	"monotron/csrc/device"
	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/megatron/arguments"
	"monotron/megatron/config"
	"monotron/megatron/optimizer"
	"monotron/megatron/schedule"
	"monotron/mpu/topology"
)

// Search walks the layouts of a model on so many devices.
type Search struct {
	Machine *Machine
	Devices int
	Memory  int64             // of a device; of all together where ranks share a host
	Flags   []string          // of the model and its training
	Filled  []string          // further ones, on which no layout depends
	Shapes  arguments.Options // its functions say what --model and --load mean
	Vocab   int               // ids

	Tried   int // layouts that training would take
	Small   int // of them, those whose state and activations alone are too large; the others are run on the clock
	Counted int // of the others, those counted to the byte

	mu      sync.Mutex
	refused error // why training would not take one of the layouts
	units   map[unitKey]*countedUnits
	book    schedule.Programs
	ended   map[string]float64 // by schedule and times: layouts that share state otherwise have the same pipeline
}

// unitKey is what a micro-batch's ops depend on.
type unitKey struct {
	tp, cp, ep, etp, micro int
	experts                int // data-parallel ranks, where tokens travel among them
	recompute              string
}

// countedUnits are counted once, by whoever wants them first.
type countedUnits struct {
	once  sync.Once
	units *units
	err   error
}

// Found is a layout that fits.
type Found struct {
	Flags  []string // of the layout
	Config config.Run
	Step   *Seconds
	Memory int64 // of the largest rank; of all where they share a host
	clock  *Clock
}

// mostCounted bounds how many layouts are counted to the byte, from the fastest on.
const mostCounted = 400

// Run finds up to n layouts that fit, the fastest first, and those that no other beats in
// both memory and time.
func (s *Search) Run(n int) (best, front []*Found, err error) {
	s.units, s.ended = map[unitKey]*countedUnits{}, map[string]float64{}
	// All legal layouts with an estimate of their time; those whose parameters alone do not fit have none.
	list, err := s.legal()
	if err != nil {
		return nil, nil, err
	}
	if s.Tried = len(list); s.Tried == 0 && s.refused == nil {
		return nil, nil, exitcode.Errorf(exitcode.Usage, "no layout of %d devices divides the model's heads and layers and --global-batch-size evenly; use another number of devices or another batch size", s.Devices)
	} else if s.Tried == 0 {
		return nil, nil, exitcode.Errorf(exitcode.Usage, "no layout of %d devices is valid for training; the first error: %w", s.Devices, s.refused)
	}
	list = slices.DeleteFunc(list, func(f *Found) bool { return f.Step == nil })
	s.Small = s.Tried - len(list)
	slices.SortStableFunc(list, func(a, b *Found) int { return cmp.Compare(a.Step.Step, b.Step.Step) })
	// The fastest are counted to the byte, as many at once as there are cores, until enough fit.
	var fit []*Found
	for at := 0; at < min(len(list), mostCounted) && len(fit) < 2*n; {
		some := list[at:min(len(list), at+2*device.Cores())]
		at += len(some)
		s.Counted += len(some)
		_ = each(upTo(len(some)), func(i int) error {
			some[i].Memory = s.count(some[i])
			return nil
		})
		for _, f := range some {
			if f.Memory <= s.Memory {
				fit = append(fit, f)
			}
		}
	}
	// Those that fit are timed with all details.
	for _, f := range fit {
		if f.Step, err = f.clock.Run(s.Machine.ConstantsOf("")); err != nil {
			return nil, nil, err
		}
	}
	slices.SortStableFunc(fit, func(a, b *Found) int { return cmp.Compare(a.Step.Step, b.Step.Step) })
	// No other is both faster and smaller.
	least := int64(math.MaxInt64)
	for _, f := range fit {
		if f.Memory < least {
			front, least = append(front, f), f.Memory
		}
	}
	return fit[:min(n, len(fit))], front, nil
}

// count is the memory of the ranks that may hold most, to the byte.
func (s *Search) count(f *Found) int64 {
	sizes, o := f.Config.Layout.Sizes(), Options{Device: s.Machine.Device}
	if s.Machine.Threads > 0 {
		all, err := Memory(f.Config, o)
		if err != nil {
			return math.MaxInt64 // training would refuse it for what flags do not show
		}
		return total(all)
	}
	most := int64(0)
	for _, rank := range ends(sizes) {
		memory, err := o.Of(f.Config, rank)
		if err != nil {
			return math.MaxInt64
		}
		if most = max(most, memory.Peak); most > s.Memory {
			break // what it holds beyond that, nobody asks
		}
	}
	return most
}

// ends are a rank of each stage that may hold most: the first two have most micro-batches
// alive, one of them without the embedding, and the last has the head.
func ends(l topology.Sizes) (ranks []int) {
	for _, stage := range []int{0, 1, l.PP - 1} {
		if r := l.Rank(topology.Coordinates{PP: min(stage, l.PP-1)}); !slices.Contains(ranks, r) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// floor is less than what the first stage's ranks hold: the state of its layers, and what
// they keep of as many micro-batches as are alive at once.
func (k *Clock) floor() float64 {
	c, dense, experts := &k.config, 1.0, 1.0
	l := c.Layout.Sizes()
	if c.Layout.DistributedOptimizer {
		dense, experts = float64(l.DP*l.CP), float64(l.ExpertDP())
	}
	value, main := 6.0, 4+c.Optimizer.MomentBytes() // 16-bit weights and f32 gradients; main parameter and moments
	if c.Precision == config.F32 {
		value, main = 8, c.Optimizer.MomentBytes()
	}
	switch optimizer.Strategy(c.Layout.Sharding) {
	case optimizer.OptimGrads:
		value, main = value-4, main+4
	case optimizer.OptimGradsParams:
		value, main = 0, main+value
	}
	state := k.least.dense*(value+main/dense) + k.least.experts*(value+main/experts)
	kept := 0.0
	for _, part := range k.parts[0] {
		for kind, n := range k.units.count(&c.Model, part.Layers) {
			kept += n * float64(k.units.kept[kind])
		}
	}
	list := c.PipelineSchedule(k.micros, false)
	return state + kept*float64(list.Live(0))/float64(max(1, list.Chunks))
}

// legal are the layouts that training's own flags let through, each with its seconds, but for those that
// are too large by the bound.
func (s *Search) legal() ([]*Found, error) {
	partial := s.options()
	partial.ModelOnly, partial.Partial = true, true
	base, _, err := arguments.ParseWith(partial, slices.Concat(s.Flags, s.Filled))
	if err != nil {
		return nil, err
	}
	if s.Vocab > 0 {
		base.Tokenizer.VocabSize = s.Vocab
	}
	flags := s.candidates(&base)
	found := make([]*Found, len(flags))
	err = each(upTo(len(flags)), func(i int) (err error) {
		found[i], err = s.take(flags[i])
		return err
	})
	return slices.DeleteFunc(found, func(f *Found) bool { return f == nil }), err
}

// options read a command line with any layout.
func (s *Search) options() arguments.Options {
	o := s.Shapes
	o.Layouts, o.Experts = true, true
	return o
}

// take is one layout with its seconds, without them where it is too large; nil: training would refuse it.
func (s *Search) take(flags []string) (*Found, error) {
	c, _, err := arguments.ParseWith(s.options(), slices.Concat(s.Flags, s.Filled, flags))
	if err != nil || c.SetVocab(s.Vocab) != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refused = cmp.Or(s.refused, err)
		return nil, nil
	}
	k, err := s.clock(c)
	if err != nil {
		return nil, nil // the model cannot be cut so
	}
	if k.shared == nil && k.floor() > float64(s.Memory) {
		if c.PipelineSchedule(k.micros, false).Check() != nil {
			return nil, nil
		}
		return &Found{Flags: flags, Config: c, clock: k}, nil
	}
	step, err := k.run(s.Machine.ConstantsOf(""), s.about)
	if err != nil {
		return nil, nil // nor scheduled
	}
	return &Found{Flags: flags, Config: c, clock: k, Step: step}, nil
}

// about is the book's, asked once for layouts with the same pipeline.
func (s *Search) about(c schedule.Config, t schedule.Times) (float64, error) {
	key := fmt.Append(nil, c)
	for _, times := range [][][]float64{t.Forward, t.Backward, {{t.Transfer}}} {
		for _, stage := range times {
			for _, x := range stage {
				key = binary.LittleEndian.AppendUint64(key, math.Float64bits(x))
			}
		}
	}
	s.mu.Lock()
	end, known := s.ended[string(key)]
	s.mu.Unlock()
	if known {
		return end, nil
	}
	end, err := s.book.About(c, t)
	if err == nil {
		s.mu.Lock()
		s.ended[string(key)] = end
		s.mu.Unlock()
	}
	return end, err
}

func (s *Search) clock(c config.Run) (*Clock, error) {
	if s.Machine.Threads > 0 {
		return NewClock(c, s.Machine)
	}
	l := c.Layout.Sizes()
	key := unitKey{tp: l.TP, cp: l.CP, ep: l.EP, etp: l.ExpertTP(), micro: c.MicroBatchSize, recompute: c.Recompute.Granularity}
	if c.Model.Experts != nil {
		key.experts = l.DP
	}
	s.mu.Lock()
	u := s.units[key]
	if u == nil {
		u = &countedUnits{}
		s.units[key] = u
	}
	s.mu.Unlock()
	u.once.Do(func() { u.units, u.err = unitsOf(c, s.Machine, s.Machine.Device) })
	if u.err != nil {
		return nil, u.err
	}
	return clockOf(c, s.Machine, u.units, &s.book)
}

// Line is the layout's flags as they are typed.
func (f *Found) Line() string {
	return argv.Line(f.Flags...)
}

package estimate

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"monotron/fault"
	"monotron/megatron/arguments"
	"monotron/megatron/engine"
	"monotron/megatron/spec"
	"monotron/megatron/training"
	"monotron/mpu/topology"
)

// Search walks the layouts of a model on so many devices.
type Search struct {
	Machine *Machine
	Devices int
	Memory  int64    // of a device
	Flags   []string // of the model and its training
	Vocab   int      // ids

	Looked int // layouts that training would take
	Small  int // of them, those whose weights, gradients and optimizer state alone are too large

	mu      sync.Mutex
	refused error // why training would not take one of the layouts
	units   map[string]*units
}

// Found is a layout that fits.
type Found struct {
	Flags  []string // of the layout
	Config training.Config
	Step   *Seconds
	Memory int64 // of the largest rank
	clock  *Clock
	quick  float64
}

// mostCounted bounds how many layouts are counted to the byte, from the fastest on.
const mostCounted = 400

// Run finds up to n layouts that fit, the fastest first, and those that no other beats in
// both memory and time.
func (s *Search) Run(n int) (best, front []*Found, err error) {
	s.units = map[string]*units{}
	list, err := s.legal()
	if err != nil {
		return nil, nil, err
	}
	if s.Looked = len(list); s.Looked == 0 {
		return nil, nil, fault.Errorf(fault.Usage, "training takes no layout of %d devices; the first: %w", s.Devices, s.refused)
	}
	list = slices.DeleteFunc(list, func(f *Found) bool { return f.clock.state() > float64(s.Memory) })
	s.Small = s.Looked - len(list)
	slices.SortStableFunc(list, func(a, b *Found) int { return cmp.Compare(a.quick, b.quick) })
	var fit []*Found
	for at := 0; at < min(len(list), mostCounted) && len(fit) < 3*n; {
		some := list[at:min(len(list), at+4*runtime.GOMAXPROCS(0))]
		at += len(some)
		places := make([]int, len(some))
		for i := range places {
			places[i] = i
		}
		_ = each(places, func(i int) error {
			c := some[i].Config
			held, err := (Options{Device: s.Machine.Device}).Ranks(c, ends(c.Layout.Sizes()))
			if err != nil {
				some[i].Memory = math.MaxInt64 // training would refuse it for what flags do not show
			}
			for _, r := range held {
				some[i].Memory = max(some[i].Memory, r.Peak)
			}
			return nil
		})
		for _, f := range some {
			if f.Memory <= s.Memory {
				fit = append(fit, f)
			}
		}
	}
	by := s.Machine.ConstantsOf("")
	for _, f := range fit {
		if f.Step, _, err = f.clock.Run(by); err != nil {
			return nil, nil, err
		}
	}
	slices.SortStableFunc(fit, func(a, b *Found) int { return cmp.Compare(a.Step.Step, b.Step.Step) })
	least := int64(math.MaxInt64)
	for _, f := range fit {
		if f.Memory < least {
			front, least = append(front, f), f.Memory
		}
	}
	return fit[:min(n, len(fit))], front, nil
}

// ends are a rank of each stage that may hold most: the first two have most micro-batches
// alive, one of them without the embedding, and the last has the head.
func ends(l topology.Sizes) (ranks []int) {
	for _, stage := range []int{0, 1, l.PP - 1} {
		if r := l.Rank(topology.Place{PP: min(stage, l.PP-1)}); !slices.Contains(ranks, r) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// state is the least that the rank with most parameters holds between steps.
func (k *Clock) state() float64 {
	c, shards := &k.config, 1.0
	if c.Layout.DistributedOptimizer || c.Layout.Sharding != "" {
		shards = float64(c.Layout.Sizes().DP)
	}
	if c.Precision == engine.F32 {
		return k.least * (8 + 8/shards)
	}
	return k.least * (6 + 12/shards)
}

// legal are the layouts that training's own flags let through.
func (s *Search) legal() ([]*Found, error) {
	base, _, err := arguments.ParseWith(arguments.Options{Layouts: true, Experts: true, HasCUDA: true, ModelOnly: true, Partial: true}, s.Flags)
	if err != nil {
		return nil, err
	}
	if base.Model.Experts != nil {
		return nil, fault.Errorf(fault.Usage, "plan search cuts dense models; of experts plan run and plan table say what a layout takes")
	}
	if s.Vocab > 0 {
		base.Tokenizer.VocabSize = s.Vocab
	}
	var flags [][]string
	for _, tp := range divisors(s.Devices) {
		for _, pp := range divisors(s.Devices / tp) {
			if base.Model.NumAttentionHeads%tp != 0 || pp > base.Model.NumLayers || tp > 4*s.Machine.PerNode {
				continue
			}
			flags = append(flags, s.layouts(&base.Model, base.GlobalBatchSize, tp, pp)...)
		}
	}
	found := make([]*Found, len(flags))
	places := make([]int, len(flags))
	for i := range places {
		places[i] = i
	}
	err = each(places, func(i int) (err error) {
		found[i], err = s.take(flags[i])
		return err
	})
	return slices.DeleteFunc(found, func(f *Found) bool { return f == nil }), err
}

func divisors(n int) (all []int) {
	for d := 1; d <= n; d++ {
		if n%d == 0 {
			all = append(all, d)
		}
	}
	return all
}

// layouts are the variations of a cut into tp x pp.
func (s *Search) layouts(m *spec.Model, batch, tp, pp int) (all [][]string) {
	dp := s.Devices / tp / pp
	cut := []string{"--world-size", strconv.Itoa(s.Devices), "--tensor-model-parallel-size", strconv.Itoa(tp), "--pipeline-model-parallel-size", strconv.Itoa(pp)}
	if tp > 1 {
		cut = append(cut, "--sequence-parallel")
	}
	shardings := [][]string{nil}
	if dp > 1 {
		shardings = [][]string{{"--use-distributed-optimizer", "--overlap-grad-reduce"}}
		if pp == 1 {
			shardings = append(shardings, []string{"--use-distributed-optimizer", "--overlap-grad-reduce", "--data-parallel-sharding-strategy", "optim_grads_params"})
		}
	}
	recomputes := [][]string{nil, {"--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"}}
	var chunks [][]string
	if m.NumLayers%pp == 0 {
		chunks = [][]string{nil}
	}
	if pp > 1 { // embedding and head as a layer each
		chunks = append(chunks, []string{"--pp-partition-method", "type:transformer|embedding"})
	}
	for _, vp := range []int{2, 3, 4, 6, 8} {
		chunk := []string{"--num-virtual-stages-per-pipeline-rank", strconv.Itoa(vp)}
		switch {
		case pp == 1:
		case m.NumLayers%(pp*vp) == 0:
			chunks = append(chunks, chunk)
		case (m.NumLayers+2)%(pp*vp) == 0:
			chunks = append(chunks, append(chunk, "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"))
		}
	}
	for _, micro := range []int{1, 2, 4, 8, 16} {
		if batch%(micro*dp) != 0 {
			continue
		}
		for _, sharding := range shardings {
			for _, recompute := range recomputes {
				for _, chunk := range chunks {
					all = append(all, slices.Concat(cut, []string{"--micro-batch-size", strconv.Itoa(micro)}, chunk, sharding, recompute))
				}
			}
		}
	}
	return all
}

// take is one layout; nil: training would refuse it.
func (s *Search) take(flags []string) (*Found, error) {
	c, _, err := arguments.ParseWith(arguments.Options{Layouts: true, Experts: true, HasCUDA: true}, slices.Concat(s.Flags, flags))
	if err != nil || c.SetVocab(s.Vocab) != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refused = cmp.Or(s.refused, err)
		return nil, nil
	}
	if _, err := c.Split().Parts(); err != nil {
		return nil, nil
	}
	l := &c.Layout
	key := fmt.Sprint(l.TP, c.MicroBatchSize, c.Recompute.Granularity)
	s.mu.Lock()
	u := s.units[key]
	if u == nil {
		if u, err = unitsOf(c, s.Machine, s.Machine.Device); err == nil {
			s.units[key] = u
		}
	}
	s.mu.Unlock()
	if err != nil {
		return nil, nil // the model cannot be cut so
	}
	k, err := clockOf(c, s.Machine, u)
	if err != nil {
		return nil, err
	}
	return &Found{Flags: flags, Config: c, clock: k, quick: k.quick(s.Machine.ConstantsOf(""))}, nil
}

// Rules says of the usual rules of choosing a layout whether they hold here.
func (s *Search) Rules(best []*Found) (lines []string) {
	if len(best) == 0 {
		return nil
	}
	c := &best[0].Config
	each, width := 18.0, "18"
	if c.Precision == engine.F32 {
		each, width = 16, "16"
	}
	n, memory := float64(c.Model.Parameters()), float64(s.Memory)
	say := func(format string, a ...any) { lines = append(lines, fmt.Sprintf(format, a...)) }
	if whole := n * each; whole < memory {
		say("\"the model fits on one device, so data parallelism alone\": it does (%.1f of %.1f GiB for weights, gradients and optimizer)", whole/(1<<30), memory/(1<<30))
	} else {
		say("\"the model does not fit on one device, so shard it or cut it\": at %s bytes a parameter it takes %.0f devices", width, math.Ceil(whole/memory))
	}
	layer := float64(c.Model.LayerParameters(0)) * each
	if layer > memory {
		say("\"the largest layer does not fit, so tensor parallelism\": it takes %.1f GiB, a device has %.1f", layer/(1<<30), memory/(1<<30))
	} else {
		say("\"the largest layer does not fit, so tensor parallelism\": not here, a layer takes %.2f GiB", layer/(1<<30))
	}
	ratio := s.Machine.Node.Rate / (s.Machine.Between.Rate / float64(s.Machine.PerNode))
	say("\"tensor parallelism stays inside a node where links between nodes are slow\": they are %.1f times slower for a device here, and the fastest layout has tensor size %d in nodes of %d",
		ratio, best[0].Config.Layout.Sizes().TP, s.Machine.PerNode)
	return lines
}

// Line is the layout's flags as they are typed.
func (f *Found) Line() string {
	return strings.ReplaceAll(strings.Join(f.Flags, " "), "type:transformer|embedding", "'type:transformer|embedding'")
}

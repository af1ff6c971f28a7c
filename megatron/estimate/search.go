package estimate

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/arguments"
	"monotron/megatron/engine"
	"monotron/megatron/optimizer"
	"monotron/megatron/schedule"
	"monotron/megatron/spec"
	"monotron/megatron/training"
	"monotron/mpu/topology"
)

// Search walks the layouts of a model on so many devices.
type Search struct {
	Machine *Machine
	Devices int
	Memory  int64    // of a device; of all together where ranks share a host
	Flags   []string // of the model and its training
	Vocab   int      // ids

	Looked  int // layouts that training would take: each is run on the clock
	Small   int // of them, those whose state and activations alone are too large
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
	Config training.Config
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
	list, err := s.legal()
	if err != nil {
		return nil, nil, err
	}
	if s.Looked = len(list); s.Looked == 0 {
		return nil, nil, fault.Errorf(fault.Usage, "training takes no layout of %d devices; the first: %w", s.Devices, s.refused)
	}
	list = slices.DeleteFunc(list, func(f *Found) bool { return f.clock.shared == nil && f.clock.floor() > float64(s.Memory) })
	s.Small = s.Looked - len(list)
	slices.SortStableFunc(list, func(a, b *Found) int { return cmp.Compare(a.Step.Step, b.Step.Step) })
	var fit []*Found
	for at := 0; at < min(len(list), mostCounted) && len(fit) < 2*n; {
		some := list[at:min(len(list), at+2*device.Cores())]
		at += len(some)
		s.Counted += len(some)
		_ = each(numbers(len(some)), func(i int) error {
			some[i].Memory = s.count(some[i])
			return nil
		})
		for _, f := range some {
			if f.Memory <= s.Memory {
				fit = append(fit, f)
			}
		}
	}
	for _, f := range fit {
		if f.Step, err = f.clock.Run(s.Machine.ConstantsOf("")); err != nil {
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

func numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
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
		held, err := o.Of(f.Config, rank)
		if err != nil {
			return math.MaxInt64
		}
		if most = max(most, held.Peak); most > s.Memory {
			break // what it holds beyond that, nobody asks
		}
	}
	return most
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

// floor is less than what the first stage's ranks hold: the state of its layers, and what
// they keep of as many micro-batches as are alive at once.
func (k *Clock) floor() float64 {
	c, dense, experts := &k.config, 1.0, 1.0
	l := c.Layout.Sizes()
	if c.Layout.DistributedOptimizer {
		dense, experts = float64(l.DP*l.CP), float64(l.ExpertDP())
	}
	value, main := 6.0, 12.0 // 16-bit weights and f32 gradients; master and moments
	if c.Precision == engine.F32 {
		value, main = 8, 8
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
		for kind, n := range kindsOfLayers(c, part.Layers) {
			kept += n * float64(k.kept[kind])
		}
	}
	list := c.Schedule(k.micros, false)
	return state + kept*float64(list.Live(0))/float64(max(1, list.Chunks))
}

// legal are the layouts that training's own flags let through, each with its seconds.
func (s *Search) legal() ([]*Found, error) {
	base, _, err := arguments.ParseWith(arguments.Options{Layouts: true, Experts: true, HasCUDA: true, ModelOnly: true, Partial: true}, s.Flags)
	if err != nil {
		return nil, err
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
			for _, cp := range divisors(s.Devices / tp / pp) {
				if cp > 1 && base.SeqLength%(2*cp) != 0 || base.SeqLength/cp < shortest {
					continue
				}
				flags = append(flags, s.layouts(&base, cut{tp, pp, cp, s.Devices / tp / pp / cp})...)
			}
		}
	}
	found := make([]*Found, len(flags))
	err = each(numbers(len(flags)), func(i int) (err error) {
		found[i], err = s.take(flags[i])
		return err
	})
	return slices.DeleteFunc(found, func(f *Found) bool { return f == nil }), err
}

// shortest is the fewest positions that ranks which share sequences have each: below it
// there is nothing to gain by sharing.
const shortest = 512

// cut is how devices share a model.
type cut struct{ tp, pp, cp, dp int }

func divisors(n int) (all []int) {
	for d := 1; d <= n; d++ {
		if n%d == 0 {
			all = append(all, d)
		}
	}
	return all
}

// layouts are the variations of a cut.
func (s *Search) layouts(c *training.Config, by cut) (all [][]string) {
	m := &c.Model
	flags := []string{"--world-size", strconv.Itoa(s.Devices), "--tensor-model-parallel-size", strconv.Itoa(by.tp), "--pipeline-model-parallel-size", strconv.Itoa(by.pp)}
	if by.cp > 1 {
		flags = append(flags, "--context-parallel-size", strconv.Itoa(by.cp))
	}
	if by.tp > 1 {
		flags = append(flags, "--sequence-parallel")
	}
	shardings := [][]string{nil}
	if by.dp*by.cp > 1 {
		overlapped := []string{"--use-distributed-optimizer", "--overlap-grad-reduce"}
		shardings = append(shardings, overlapped, slices.Concat(overlapped, []string{"--data-parallel-sharding-strategy", "optim_grads"}))
		if by.pp == 1 { // with stages every micro-batch would gather all again
			shardings = append(shardings, slices.Concat(overlapped, []string{"--data-parallel-sharding-strategy", "optim_grads_params"}))
		}
	}
	recomputes := [][]string{nil, {"--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"}}
	for _, micro := range []int{1, 2, 4, 8, 16} {
		if c.GlobalBatchSize%(micro*by.dp) != 0 {
			continue
		}
		for _, experts := range expertCuts(m, by) {
			for _, sharding := range shardings {
				for _, recompute := range recomputes {
					for _, chunk := range chunksOf(m, by.pp) {
						all = append(all, slices.Concat(flags, []string{"--micro-batch-size", strconv.Itoa(micro)}, experts, chunk, sharding, recompute))
					}
				}
			}
		}
	}
	return all
}

// expertCuts are the ways to share experts.
func expertCuts(m *spec.Model, by cut) (all [][]string) {
	if m.Experts == nil {
		return [][]string{nil}
	}
	for _, etp := range slices.Compact([]int{1, by.tp}) {
		for _, ep := range divisors(by.tp * by.cp * by.dp / etp) {
			if m.Experts.Num%ep == 0 && (ep > 1 || etp == by.tp) {
				all = append(all, []string{"--expert-model-parallel-size", strconv.Itoa(ep), "--expert-tensor-parallel-size", strconv.Itoa(etp)})
			}
		}
	}
	return all
}

// chunksOf are the ways to cut layers over stages.
func chunksOf(m *spec.Model, pp int) (chunks [][]string) {
	if m.NumLayers%pp == 0 {
		chunks = [][]string{nil}
	}
	if pp == 1 {
		return chunks
	}
	chunks = append(chunks, []string{"--pp-partition-method", "type:transformer|embedding"}) // embedding and head as a layer each
	for _, vp := range []int{2, 3, 4, 6, 8} {
		chunk := []string{"--num-virtual-stages-per-pipeline-rank", strconv.Itoa(vp)}
		switch {
		case m.NumLayers%(pp*vp) == 0:
			chunks = append(chunks, chunk)
		case (m.NumLayers+2)%(pp*vp) == 0:
			chunks = append(chunks, append(chunk, "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"))
		}
	}
	return chunks
}

// take is one layout with its seconds; nil: training would refuse it.
func (s *Search) take(flags []string) (*Found, error) {
	c, _, err := arguments.ParseWith(arguments.Options{Layouts: true, Experts: true, HasCUDA: true}, slices.Concat(s.Flags, flags))
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

func (s *Search) clock(c training.Config) (*Clock, error) {
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

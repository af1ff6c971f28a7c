package measure

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"monotron/csrc/device"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/plan"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/mpu/ranks"
	"monotron/tools/internal/timing"
)

// stepCase is a small model that is trained to see its ops: a layer as it is, or a
// tensor-parallel rank's part of it.
type stepCase struct {
	model     spec.Model
	seq, rows int // of a micro-batch
	precision string
	ranks     int // 1, with all threads, one a thread, or two that take turns on each
	tp        int // ranks that cut the layer between them; others have batches of their own
}

func (c stepCase) String() string {
	return fmt.Sprintf("steps of hidden size %d, %d heads, %d x %d tokens, %s, %d ranks, %d a layer", c.model.HiddenSize, c.model.NumAttentionHeads, c.rows, c.seq, c.precision, c.ranks, c.tp)
}

// cases are models of two families at several sizes, each dtype, by one rank, by a rank a
// thread, and some by two ranks a thread.
func (s *survey) cases() (all []stepCase) {
	each, crowded := s.machine.Threads, 2*s.machine.Threads
	counts := slices.Compact([]int{1, each})
	add := func(m spec.Model, batch [2]int, tp int, counts ...int) {
		m.NumLayers = min(m.NumLayers, s.effort.layers)
		for _, precision := range []string{"f32", "bf16"} {
			for _, n := range counts {
				all = append(all, stepCase{m, batch[0], batch[1], precision, n, tp})
			}
		}
	}
	for _, hidden := range s.effort.hidden {
		for i, batch := range s.effort.batches {
			if hidden*batch[0]*batch[1] > s.effort.most {
				continue
			}
			for _, cut := range s.effort.cuts {
				if hidden/64 >= cut {
					add(gptCase(hidden, cut), batch, 1, counts...)
				}
				if cut == 1 && i%2 == 1 {
					add(llamaCase(hidden), batch, 1, counts...)
				}
			}
			if hidden/64 >= each && each > 1 && i%2 == 1 {
				add(gptCase(hidden, 1), batch, each, each)
			}
			if i == 0 || hidden*batch[0]*batch[1] > s.effort.most/2 { // as many steps of more ranks take longer
				continue
			}
			models := []spec.Model{gptCase(hidden, 1), llamaCase(hidden)}
			for _, m := range models[:1+i%2] {
				for _, tp := range slices.Compact([]int{1, 2, crowded}) { // batches alone, groups that meet by themselves, or one
					if m.NumQueryGroups%tp == 0 {
						add(m, batch, tp, crowded)
					}
				}
			}
		}
	}
	return all
}

// caseLayers is how many layers a case has: so many that what a layer kept for its backward
// pass has left the caches by then, as it has in a model worth a plan.
func caseLayers(hidden int) int { return max(2, 2048/hidden) }

// caseVocab is the vocabulary of the smallest model; others have one that grows with them.
const caseVocab = 1024

// gptCase is GPT-2's layer, or a part of it.
func gptCase(hidden, cut int) spec.Model {
	vocab := caseVocab * max(1, hidden/256) / cut
	return spec.Model{NumLayers: caseLayers(hidden), HiddenSize: hidden, FFNHiddenSize: 4 * hidden / cut, NumAttentionHeads: hidden / 64 / cut, NumQueryGroups: hidden / 64 / cut, KVChannels: 64,
		VocabSize: vocab, PaddedVocabSize: vocab, MaxPositions: 1024, Position: spec.PositionLearned, Normalization: spec.LayerNorm, NormEpsilon: 1e-5,
		Activation: spec.GeluTanh, LinearBias: true, QKVBias: true, Tied: true, WindowLeft: -1, InitStd: 0.02, EmbeddingInitStd: 0.02, HiddenDropout: 0.1, AttentionDropout: 0.1}
}

// llamaCase is Llama's layer.
func llamaCase(hidden int) spec.Model {
	m := gptCase(hidden, 1)
	m.FFNHiddenSize, m.Position, m.MaxPositions, m.RotaryBase, m.RotaryPercent = 8*hidden/3/64*64, spec.PositionRope, 0, 10000, 1
	m.Normalization, m.Activation, m.LinearBias, m.QKVBias, m.Tied, m.HiddenDropout, m.AttentionDropout = spec.RMSNorm, spec.Swiglu, false, false, false, 0, 0
	m.NumQueryGroups = max(1, m.NumAttentionHeads/2)
	return m
}

// coldSteps come before those that count.
const coldSteps = 2

// steps trains a case for a while and keeps what its ops took.
func (s *survey) steps(c stepCase) error {
	o := timing.Shape{Model: c.model, Rows: c.rows, Seq: c.seq, Precision: c.precision}
	run := timing.Config(o)
	run.Layout = config.Layout{WorldSize: c.ranks, TP: c.tp, DP: c.ranks / c.tp, SequenceParallel: c.tp > 1}
	run.GlobalBatchSize = c.rows * max(1, run.Layout.DP)
	run.EvalMicroBatchSize, run.EvalGlobalBatchSize = run.MicroBatchSize, run.GlobalBatchSize
	if err := run.SetVocab(o.Model.VocabSize); err != nil {
		return err
	}
	seen, apart := make([]shapeTimes, c.ranks), s.apart()
	err := ranks.Run(engine.Ranks(&run.Step, s.open), func(r *ranks.Rank) error {
		e, err := timing.NewEngine(r, run)
		if err != nil {
			return err
		}
		if err := e.Optimizer.Fill(s.values(r.Device)); err != nil {
			return err
		}
		mine := &seen[r.Number]
		mine.calls = map[[2]string]*shapeCalls{}
		runtime.GC() // what made the engine is not collected during steps
		random, began := rand.New(rand.NewPCG(timing.Seed, uint64(r.Coordinates.DP))), time.Time{}
		for n := 0; ; n++ {
			if n == coldSteps {
				r.Device.Observe, began = mine.add, time.Now()
			}
			batch := []*engine.Micro{timing.RandomTokens(random, o), timing.RandomTokens(random, o)} // the second one's gradients are added
			start := time.Now()
			if _, err := e.Step(batch); err != nil {
				return err
			}
			if n >= coldSteps {
				mine.step(time.Since(start))
			}
			if more, err := s.continues(r, n, began); err != nil || !more {
				return err
			}
		}
	})
	if err != nil {
		return err
	}
	apart = max(apart, s.apart())
	s.keep(c, seen, apart)
	if c.ranks > 1 {
		s.met = append(s.met, metOf(run, seen, apart))
	}
	return nil
}

// values gives a parameter a start that takes no time to draw: all have the same normal numbers.
func (s *survey) values(d *device.Device) func(*mpu.Param) error {
	return func(p *mpu.Param) error {
		from := s.normals
		if p.Init.Kind == mpu.InitConstant {
			from = []float32{float32(p.Init.Value)}
		}
		start := make([]float32, p.Len())
		for at := 0; at < len(start); {
			at += copy(start[at:], from)
		}
		p.SetMain(d, start)
		return nil
	}
}

// metCase is a step of ranks that met each other, the mean.
type metCase struct {
	config     config.Run
	step, work float64 // seconds, and a rank's in ops
	ops        float64
	apart      float64 // the cores
}

func metOf(config config.Run, seen []shapeTimes, apart float64) metCase {
	m := metCase{config: config, apart: apart}
	for i := range seen {
		usual := seen[i].usual()
		for _, n := range usual {
			t, share := &seen[i].steps[n], 1/float64(len(seen)*len(usual))
			m.step, m.work, m.ops = m.step+share*t.took.Seconds(), m.work+share*t.spent.Seconds(), m.ops+share*float64(t.ops)
		}
	}
	return m
}

// meetings finds what meetings lose, by the ranks of a group and how many groups there are, from
// what the steps' ops and collectives do not say.
func (s *survey) meetings() error {
	steps := map[[2]int][]plan.Met{}
	for _, c := range nearOnes(s.met, func(c metCase) bool { return s.near(c.apart) }) {
		met, err := s.machine.Meet(c.config, 2, c.step, c.work+c.ops*s.machine.Launch)
		if err != nil {
			return err
		}
		group := [2]int{met.Ranks, met.Groups}
		steps[group] = append(steps[group], met)
	}
	for _, group := range slices.SortedFunc(maps.Keys(steps), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
		t := plan.FitMeetings(steps[group])
		s.machine.Meetings = append(s.machine.Meetings, plan.MeetingTimes{Ranks: group[0], Groups: group[1], Seconds: round(t.Seconds), Late: round(t.Late)})
	}
	return nil
}

// continues: all ranks take as many steps, those that rank 0 has time for.
func (s *survey) continues(r *ranks.Rank, n int, began time.Time) (bool, error) {
	more := n < coldSteps+1 || time.Since(began) < s.effort.step
	if r.Sizes.World() == 1 {
		return more, nil
	}
	observe := r.Device.Observe
	r.Device.Observe = nil
	defer func() { r.Device.Observe = observe }()
	t := r.Device.Arena.Zeroed(device.Communication, device.I32, 1)
	defer r.Device.Arena.Free(t)
	if more {
		r.Device.Fill(t, 1)
	}
	if err := r.World().Broadcast(t, 0).Wait(); err != nil {
		return false, err
	}
	return device.ReadSlice[int32](r.Device, t)[0] == 1, nil
}

// shapeTimes are the calls of a rank's steps by op and shape.
type shapeTimes struct {
	calls map[[2]string]*shapeCalls
	spent time.Duration // in ops, this step
	count int
	steps []stepTime
}

type stepTime struct {
	took  time.Duration
	spent time.Duration // in ops
	ops   int
	idle  float64 // seconds between two ops, the mean
}

type shapeCalls struct {
	device.Work
	took [][]float64 // by step
}

func (t *shapeTimes) add(c device.Call) {
	key := [2]string{c.Op.String(), c.Shape}
	x := t.calls[key]
	if x == nil {
		x = &shapeCalls{Work: c.Work}
		t.calls[key] = x
	}
	for len(x.took) <= len(t.steps) {
		x.took = append(x.took, nil)
	}
	last := &x.took[len(t.steps)]
	took := c.Took - c.Queued
	*last = append(*last, took.Seconds())
	t.spent += took
	t.count++
}

func (t *shapeTimes) step(took time.Duration) {
	t.steps = append(t.steps, stepTime{took, t.spent, t.count, max(0, (took-t.spent).Seconds()) / float64(max(1, t.count))})
	t.spent, t.count = 0, 0
}

// usual are the steps that are reported: without the quarter that took longest, in which something
// else ran on the machine. What slows single calls down in every step belongs to the step.
func (t *shapeTimes) usual() []int {
	order := make([]int, len(t.steps))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(t.steps[a].took, t.steps[b].took) })
	return order[:len(order)-(len(order)+2)/4]
}

// of is what a shape's calls took in those steps.
func (x *shapeCalls) of(steps []int) (all []float64) {
	for _, n := range steps {
		if n < len(x.took) {
			all = append(all, x.took[n]...)
		}
	}
	return all
}

func mean(all []float64) (mean float64) {
	for _, x := range all {
		mean += x / float64(len(all))
	}
	return mean
}

// opTimes are an op's rows, and what each took in every visit to a case that has it.
type opTimes struct {
	plan.OpTimes
	visits [][]visit
}

type visit struct{ seconds, apart float64 }

// conclude returns of each shape the visit in the middle, of those that saw the cores near where there are
// any: what disturbs a machine goes by, and cases are visited again later.
func (o *opTimes) conclude(near func(apart float64) bool) plan.OpTimes {
	for i, row := range o.Times {
		seen := nearOnes(o.visits[i], func(v visit) bool { return near(v.apart) })
		slices.SortFunc(seen, func(a, b visit) int { return cmp.Compare(a.seconds, b.seconds) })
		row[len(row)-1] = round(seen[(len(seen)-1)/2].seconds)
	}
	slices.SortFunc(o.Times, slices.Compare)
	return o.OpTimes
}

// keep adds what ranks saw to what is known.
func (s *survey) keep(c stepCase, seen []shapeTimes, apart float64) {
	all, work := map[[2]string][]float64{}, map[[2]string]device.Work{}
	for i := range seen {
		usual := seen[i].usual()
		for key, x := range seen[i].calls {
			all[key], work[key] = append(all[key], x.of(usual)...), x.Work
		}
		if c.ranks == 1 {
			for _, n := range usual {
				s.launch = append(s.launch, seen[i].steps[n].idle)
			}
		}
	}
	for key, took := range all {
		if len(took) > 0 {
			s.keepOp(key, c.ranks, work[key], visit{mean(took), apart})
		}
	}
}

// keepOp adds a visit to an op at a shape.
func (s *survey) keepOp(key [2]string, ranks int, work device.Work, v visit) {
	form, numbers := plan.Form(key[1])
	at := opKey{key[0], form, ranks}
	o := s.ops[at]
	if o == nil {
		o = &opTimes{OpTimes: plan.OpTimes{Op: key[0], Form: form, Ranks: ranks}}
		s.ops[at] = o
	}
	i := slices.IndexFunc(o.Times, func(r []float64) bool { return slices.Equal(r[:len(numbers)], numbers) })
	if i < 0 {
		i = len(o.Times)
		o.Times, o.visits = append(o.Times, append(slices.Clone(numbers), work.FLOPs, work.Bytes, 0)), append(o.visits, nil)
	}
	o.visits[i] = append(o.visits[i], v)
}

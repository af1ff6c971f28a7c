package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"monotron/csrc/device"
	"monotron/megatron/engine"
	"monotron/megatron/estimate"
	"monotron/megatron/spec"
	"monotron/mpu/ranks"
)

// stepCase is a small model that is trained to see its ops: a layer as it is, or a
// tensor-parallel rank's part of it.
type stepCase struct {
	model     spec.Model
	seq, rows int // of a micro-batch
	precision string
	ranks     int  // 1, with all threads, or one a thread
	shared    bool // ranks cut the layer between them instead of the batch
}

func (c stepCase) String() string {
	return fmt.Sprintf("steps of hidden size %d, %d heads, %d x %d tokens, %s, %d ranks", c.model.HiddenSize, c.model.NumAttentionHeads, c.rows, c.seq, c.precision, c.ranks)
}

// cases are models of two families at several sizes, each dtype, by one rank and by a rank a
// thread.
func (s *survey) cases() (all []stepCase) {
	counts := []int{1}
	if s.machine.Threads > 1 {
		counts = append(counts, s.machine.Threads)
	}
	add := func(m spec.Model, batch [2]int, shared bool) {
		for _, precision := range []string{"f32", "bf16"} {
			for _, n := range counts {
				if !shared || n > 1 {
					all = append(all, stepCase{m, batch[0], batch[1], precision, n, shared})
				}
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
					add(gptCase(hidden, cut), batch, false)
				}
				if cut == 1 && i%2 == 1 {
					add(llamaCase(hidden), batch, false)
				}
			}
			if hidden/64 >= s.machine.Threads && i%2 == 1 {
				add(gptCase(hidden, 1), batch, true)
			}
		}
	}
	return all
}

// caseVocab is the vocabulary of the smallest model; others have one that grows with them.
const caseVocab = 1024

// gptCase is GPT-2's layer, or a part of it.
func gptCase(hidden, cut int) spec.Model {
	vocab := caseVocab * max(1, hidden/256) / cut
	return spec.Model{NumLayers: 2, HiddenSize: hidden, FFNHiddenSize: 4 * hidden / cut, NumAttentionHeads: hidden / 64 / cut, NumQueryGroups: hidden / 64 / cut, KVChannels: 64,
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

// steps trains a case for a while and keeps what its ops took.
func (s *survey) steps(c stepCase) error {
	o := options{model: c.model, batch: c.rows, seq: c.seq, precision: c.precision}
	config := configOf(o)
	if config.Layout = (engine.Layout{WorldSize: c.ranks, DP: c.ranks}); c.shared {
		config.Layout = engine.Layout{WorldSize: c.ranks, TP: c.ranks, SequenceParallel: true}
	}
	config.GlobalBatchSize = c.rows * max(1, config.Layout.DP)
	if err := config.SetVocab(o.model.VocabSize); err != nil {
		return err
	}
	seen := make([]shapeTimes, c.ranks)
	err := ranks.Run(config.Ranks(s.open), func(r *ranks.Rank) error {
		e, err := engineOf(r, config)
		if err != nil {
			return err
		}
		mine := &seen[r.Number]
		mine.calls = map[[2]string]*shapeCalls{}
		random, began := rand.New(rand.NewPCG(dataSeed, uint64(r.Place.DP))), time.Time{}
		for n := 0; ; n++ {
			if n == 1 {
				r.Device.Observe, began = mine.add, time.Now()
			}
			batch := []*engine.Micro{randomTokens(random, o), randomTokens(random, o)} // the second one's gradients are added
			start := time.Now()
			if _, err := e.Step(batch); err != nil {
				return err
			}
			if n > 0 {
				mine.step(time.Since(start))
			}
			if more, err := s.goesOn(r, n, began); err != nil || !more {
				return err
			}
		}
	})
	if err != nil {
		return err
	}
	s.keep(c, seen)
	return nil
}

// goesOn: all ranks take as many steps, those that rank 0 has time for.
func (s *survey) goesOn(r *ranks.Rank, n int, began time.Time) (bool, error) {
	more := n < 3 || time.Since(began) < s.effort.step
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
	idle  []float64 // seconds between two ops, the mean of each step
}

type shapeCalls struct {
	device.Work
	took []float64
}

func (t *shapeTimes) add(c device.Call) {
	key := [2]string{c.Op.String(), c.Shape}
	x := t.calls[key]
	if x == nil {
		x = &shapeCalls{Work: c.Work}
		t.calls[key] = x
	}
	x.took = append(x.took, c.Took.Seconds())
	t.spent += c.Took
	t.count++
}

func (t *shapeTimes) step(took time.Duration) {
	t.idle = append(t.idle, max(0, (took-t.spent).Seconds())/float64(max(1, t.count)))
	t.spent, t.count = 0, 0
}

// fairMean leaves out the tenth that took longest: what else ran on the machine.
func fairMean(all []float64) (mean float64) {
	slices.Sort(all)
	all = all[:len(all)-len(all)/10]
	for _, x := range all {
		mean += x / float64(len(all))
	}
	return mean
}

// keep adds what ranks saw to what is known; a shape that was seen before keeps the mean.
func (s *survey) keep(c stepCase, seen []shapeTimes) {
	all := map[[2]string]*shapeCalls{}
	for _, rank := range seen {
		for key, x := range rank.calls {
			if sum := all[key]; sum != nil {
				sum.took = append(sum.took, x.took...)
			} else {
				all[key] = x
			}
		}
	}
	if c.ranks == 1 {
		s.launch = append(s.launch, fairMean(seen[0].idle))
	}
	for key, x := range all {
		form, numbers := estimate.Form(key[1])
		o := s.ops[opKey{key[0], form, c.ranks}]
		if o == nil {
			o = &estimate.OpTimes{Op: key[0], Form: form, Ranks: c.ranks}
			s.ops[opKey{key[0], form, c.ranks}] = o
		}
		row, size := append(slices.Clone(numbers), x.FLOPs, x.Bytes, round(fairMean(x.took))), len(numbers)
		if i := slices.IndexFunc(o.Times, func(r []float64) bool { return slices.Equal(r[:size], numbers) }); i >= 0 {
			o.Times[i][size+2] = round((o.Times[i][size+2] + row[size+2]) / 2)
			continue
		}
		o.Times = append(o.Times, row)
	}
}

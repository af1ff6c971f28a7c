package inference

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/megatron/spec"
)

// tiny is a model of 11 ids whose random weights are large enough for its
// distributions not to be flat.
func tiny(t *testing.T, change func(*spec.Model)) *Loaded {
	t.Helper()
	m, err := spec.Preset("shakespeare-char")
	if err != nil {
		t.Fatal(err)
	}
	m.NumLayers, m.HiddenSize, m.FFNHiddenSize, m.NumAttentionHeads, m.NumQueryGroups, m.KVChannels = 2, 16, 32, 2, 2, 8
	m.VocabSize, m.PaddedVocabSize, m.MaxPositions, m.InitStd, m.EmbeddingInitStd = 11, 16, 24, 0.4, 0.4
	if change != nil {
		change(&m)
	}
	l := &Loaded{Model: m}
	d := ref.Open()
	t.Cleanup(d.Arena.Close)
	if err := l.build(d, LoadOptions{Precision: "f32"}, 24); err != nil {
		t.Fatal(err)
	}
	for _, p := range l.Stages[0].Params() {
		p.Initialize(d, 7)
	}
	return l
}

var prompt = []int32{3, 1, 4, 1, 5}

func sample(t *testing.T, l *Loaded, o SampleOptions) []int32 {
	t.Helper()
	out, err := l.Sample(prompt, o)
	if err != nil {
		t.Fatal(err)
	}
	return out.IDs
}

// logProbs of every position of ids, from one pass without a cache.
func logProbs(t *testing.T, l *Loaded, ids []int32) (all [][]float64) {
	t.Helper()
	err := l.Logits(ids, func(_ int, x []float32) error {
		all = append(all, LogSoftmax(x))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Claim: a seed names a continuation, and other seeds give others.
func TestSeed(t *testing.T) {
	l := tiny(t, nil)
	o := SampleOptions{MaxNew: 12, Sampling: Sampling{Temperature: 1, Seed: 5}}
	first := sample(t, l, o)
	if again := sample(t, l, o); !slices.Equal(first, again) {
		t.Errorf("seed 5 gave %v, then %v", first, again)
	}
	o.Seed = 6
	if other := sample(t, l, o); slices.Equal(first, other) {
		t.Errorf("seeds 5 and 6 both gave %v", other)
	}
}

// Claim: top-k 1, a tiny top-p and a tiny temperature are greedy; top-k of the
// complete vocabulary and top-p 1 change nothing.
func TestSamplingEdges(t *testing.T) {
	l := tiny(t, nil)
	greedy := sample(t, l, SampleOptions{MaxNew: 10})
	for _, o := range []SampleOptions{{Sampling: Sampling{Temperature: 2, TopK: 1}}, {Sampling: Sampling{Temperature: 2, TopP: 1e-9}}, {Sampling: Sampling{Temperature: 1e-6}}} {
		o.MaxNew, o.Seed = 10, 3
		if got := sample(t, l, o); !slices.Equal(got, greedy) {
			t.Errorf("%+v gave %v, greedy is %v", o, got, greedy)
		}
	}
	free := sample(t, l, SampleOptions{MaxNew: 10, Sampling: Sampling{Temperature: 1, Seed: 3}})
	for _, o := range []SampleOptions{{Sampling: Sampling{TopK: 11}}, {Sampling: Sampling{TopK: 1000}}, {Sampling: Sampling{TopP: 1}}, {Sampling: Sampling{TopK: 11, TopP: 1}}} {
		o.MaxNew, o.Temperature, o.Seed = 10, 1, 3
		if got := sample(t, l, o); !slices.Equal(got, free) {
			t.Errorf("%+v gave %v, without limits it is %v", o, got, free)
		}
	}
}

// Claim: top-k and top-p choose only among the tokens they keep, and each of
// those comes up; frequencies follow the probabilities.
func TestChoose(t *testing.T) {
	lp := make([]float32, 5)
	for i, p := range []float64{0.1, 0.4, 0.05, 0.25, 0.2} {
		lp[i] = float32(math.Log(p))
	}
	g := &Generator{Device: ref.Open(), Vocab: 5}
	for _, c := range []struct {
		o    SampleOptions
		want map[int32]float64 // share of each
	}{
		{SampleOptions{Sampling: Sampling{Temperature: 1}}, map[int32]float64{0: 0.1, 1: 0.4, 2: 0.05, 3: 0.25, 4: 0.2}},
		{SampleOptions{Sampling: Sampling{Temperature: 1, TopK: 2}}, map[int32]float64{1: 0.4 / 0.65, 3: 0.25 / 0.65}},
		{SampleOptions{Sampling: Sampling{Temperature: 1, TopP: 0.6}}, map[int32]float64{1: 0.4 / 0.65, 3: 0.25 / 0.65}},
		{SampleOptions{Sampling: Sampling{Temperature: 1, TopK: 3, TopP: 0.7}}, map[int32]float64{1: 0.4 / 0.65, 3: 0.25 / 0.65}}, // p of the probability top-k left
		{SampleOptions{Sampling: Sampling{Temperature: 0.5}}, map[int32]float64{0: 0.01 / 0.275, 1: 0.16 / 0.275, 2: 0.0025 / 0.275, 3: 0.0625 / 0.275, 4: 0.04 / 0.275}},
	} {
		const draws = 20000
		count := map[int32]int{}
		for _, id := range sampled(t, g, &c.o.Sampling, lp, draws) {
			count[id]++
		}
		for id := range lp {
			share := float64(count[int32(id)]) / draws
			if want := c.want[int32(id)]; math.Abs(share-want) > 0.015 || (want == 0) != (share == 0) {
				t.Errorf("%+v: token %d came up in %.3f of the draws, want %.3f", c.o, id, share, want)
			}
		}
	}
}

// sampled are the first n new tokens, each from the same logits.
func sampled(t *testing.T, g *Generator, s *Sampling, logits []float32, n int) (ids []int32) {
	t.Helper()
	all := g.Device.Arena.Alloc(device.Workspace, device.F32, int64(n), int64(len(logits)))
	defer g.Device.Arena.Free(all)
	device.WriteSlice(g.Device, all, slices.Repeat(logits, n))
	var list []wish
	for i := range n {
		list = append(list, wish{Sampling: s, nth: i, about: -1, tell: -1})
	}
	tokens, bad, err := g.choose(all, list)
	if err := errors.Join(append(bad, err)...); err != nil {
		t.Fatal(err)
	}
	for _, token := range tokens {
		ids = append(ids, token.ID)
	}
	return ids
}

// headsByLayer makes a model with a window in the first layer, and wider heads whose keys are values in the second.
func headsByLayer(m *spec.Model) {
	m.Position, m.RotaryPercent, m.RotaryBase, m.MaxPositions, m.Context = spec.PositionRope, 1, 10000, 0, 24
	m.QKNorm, m.ValueNorm, m.KeysAreValues, m.LayerScalar, m.WindowLeft, m.Windowed = true, true, true, true, 5, []bool{true, false}
	m.Full = &spec.FullAttention{KVChannels: m.KVChannels + 2, NumQueryGroups: 1}
}

// Claim: extending a cache gives the numbers of one pass over the complete text,
// for learned positions, RoPE with grouped queries, ALiBi, latent attention, whose cache holds latents, layers that read
// the keys of others, and states of gated delta nets, convolutions and state-space scans.
func TestCacheEqualsFullPass(t *testing.T) {
	for name, change := range map[string]func(*spec.Model){
		"latent": latent, "shared keys": sharedKeys,
		"learned": nil,
		"rope": func(m *spec.Model) {
			m.Position, m.MaxPositions, m.Context, m.NumQueryGroups = spec.PositionRope, 0, 24, 1
		},
		"alibi": func(m *spec.Model) { m.Position, m.MaxPositions = spec.PositionAlibi, 0 },
		"alibi table": func(m *spec.Model) {
			m.Position, m.MaxPositions, m.Context, m.AlibiTable = spec.PositionAlibi, 0, 24, true
		},
		"gated delta net": func(m *spec.Model) {
			m.Delta, m.OutputGate = &spec.Delta{KeyHeads: 2, ValueHeads: 4, KeyDim: 5, ValueDim: 18, Taps: 4, Layers: []bool{true, false}}, true
		},
		"heads by layer": headsByLayer,
		"state-space scan": func(m *spec.Model) {
			m.LinearBias, m.QKVBias, m.Normalization = false, false, spec.RMSNorm
			m.Mamba = &spec.Mamba{Heads: 4, Groups: 2, HeadDim: 18, StateDim: 5, Taps: 4, ConvBias: true, DtMin: 0.2, Layers: []bool{true, false}}
		},
		"layers of one sublayer": oneSublayer,
		"short convolution": func(m *spec.Model) {
			m.LinearBias, m.QKVBias, m.Conv = false, false, &spec.ShortConv{Taps: 3, Layers: []bool{true, false}}
		},
	} {
		l := tiny(t, change)
		out, err := l.Sample(prompt, SampleOptions{MaxNew: 15, Sampling: Sampling{Temperature: 1, Seed: 2}})
		if err != nil {
			t.Fatal(err)
		}
		full := logProbs(t, l, slices.Concat(prompt, out.IDs))
		for i, id := range out.IDs {
			if want := full[len(prompt)+i-1][id]; math.Abs(out.LogProbs[i]-want) > 1e-4 {
				t.Errorf("%s: token %d has log p %.6f with the cache, %.6f in one pass", name, i, out.LogProbs[i], want)
			}
		}
	}
}

// Claim: generation ends with the first token that ends texts, which is the last id; there may be several.
func TestStop(t *testing.T) {
	l := tiny(t, nil)
	free := sample(t, l, SampleOptions{MaxNew: 10})
	stop := free[3]
	first := slices.Index(free, stop)
	if got := sample(t, l, SampleOptions{MaxNew: 10, Ends: []int32{stop}}); !slices.Equal(got, free[:first+1]) {
		t.Errorf("stop at %d: %v, want %v", stop, got, free[:first+1])
	}
	if got := sample(t, l, SampleOptions{MaxNew: 10, Ends: []int32{-1, stop}}); !slices.Equal(got, free[:first+1]) {
		t.Errorf("stop at the second, %d: %v, want %v", stop, got, free[:first+1])
	}
}

// Claim: no n-gram of prompt and continuation occurs twice where that is asked,
// by sampling and by beams (the prompt itself has none twice for n 2).
func TestNoRepeats(t *testing.T) {
	l := tiny(t, nil)
	for n := 2; n <= 3; n++ {
		o := SampleOptions{MaxNew: 19, Sampling: Sampling{NoRepeatNgram: n}}
		texts := [][]int32{sample(t, l, o)}
		beams, err := l.Beam(prompt, BeamOptions{Beams: 3, MaxNew: 19, LengthPenalty: 1, NoRepeatNgram: n})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range beams {
			texts = append(texts, b.IDs)
		}
		for _, text := range texts {
			all, seen := slices.Concat(prompt, text), map[string]bool{}
			for i := 0; i+n <= len(all); i++ {
				gram := fmt.Sprint(all[i : i+n])
				if seen[gram] {
					t.Errorf("n %d: %s twice in %v", n, gram, all)
				}
				seen[gram] = true
			}
		}
	}
}

// Claim: exactly the tokens that would complete a second copy are banned.
func TestBanRepeats(t *testing.T) {
	for _, c := range []struct {
		ids    []int32
		n      int
		banned []int32
	}{
		{[]int32{1, 2, 3, 1, 2}, 3, []int32{3}},
		{[]int32{1, 2, 3, 1, 2}, 2, []int32{3}},
		{[]int32{1, 2, 1, 3, 1}, 2, []int32{2, 3}},
		{[]int32{1, 2, 1}, 1, []int32{1, 2}},
		{[]int32{1, 2}, 3, nil},
		{[]int32{1, 1}, 2, []int32{1}},
		{[]int32{1, 2, 1}, 0, nil},
		{nil, 1, nil},
	} {
		banned := slices.Compact(slices.Sorted(slices.Values(repeats(c.ids, c.n))))
		if !slices.Equal(banned, c.banned) {
			t.Errorf("%v, n %d: banned %v, want %v", c.ids, c.n, banned, c.banned)
		}
	}
}

// Claim: as many beams as the vocabulary find the best two-token sequences of
// all 121, best first, with the scores of one pass.
func TestBeamExhaustive(t *testing.T) {
	l := tiny(t, nil)
	found, err := l.Beam(prompt, BeamOptions{Beams: 11, MaxNew: 2, LengthPenalty: 0.7})
	if err != nil {
		t.Fatal(err)
	}
	var all []Beam
	first := logProbs(t, l, prompt)[len(prompt)-1]
	for a := range int32(11) {
		second := logProbs(t, l, append(slices.Clone(prompt), a))[len(prompt)]
		for b := range int32(11) {
			all = append(all, Beam{[]int32{a, b}, (first[a] + second[b]) / math.Pow(2, 0.7)})
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Score > all[j].Score })
	for i, b := range found {
		if !slices.Equal(b.IDs, all[i].IDs) || math.Abs(b.Score-all[i].Score) > 1e-4 {
			t.Errorf("place %d: %v %.5f, want %v %.5f", i, b.IDs, b.Score, all[i].IDs, all[i].Score)
		}
	}
	if len(found) != 11 {
		t.Errorf("%d beams, want 11", len(found))
	}
}

// Claim: one beam is greedy; scores fall from first to last; a beam ends at its
// stop token, and early stopping returns no more than was asked for.
func TestBeamInvariants(t *testing.T) {
	l := tiny(t, nil)
	greedy := sample(t, l, SampleOptions{MaxNew: 9})
	one, err := l.Beam(prompt, BeamOptions{Beams: 1, MaxNew: 9, LengthPenalty: 1})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(one[0].IDs, greedy) {
		t.Errorf("one beam gave %v, greedy is %v", one[0].IDs, greedy)
	}
	for _, early := range []bool{false, true} {
		const stop = 2
		beams, err := l.Beam(prompt, BeamOptions{Beams: 4, MaxNew: 15, LengthPenalty: 1, EarlyStopping: early, Ends: []int32{stop}})
		if err != nil {
			t.Fatal(err)
		}
		if len(beams) != 4 {
			t.Errorf("early stopping %v: %d beams, want 4", early, len(beams))
		}
		for i, b := range beams {
			if i > 0 && b.Score > beams[i-1].Score {
				t.Errorf("early stopping %v: place %d scores more than the one before", early, i)
			}
			if at := slices.Index(b.IDs, stop); at >= 0 && at != len(b.IDs)-1 || at < 0 && len(b.IDs) != 15 {
				t.Errorf("early stopping %v: %v does not end at its stop token or the limit", early, b.IDs)
			}
		}
	}
}

// Claim: what the model cannot take is one error with its exit code, and memory
// is given back.
func TestRefusals(t *testing.T) {
	l := tiny(t, nil)
	before := l.Device.Arena.Usage().Allocated
	for _, c := range []struct {
		prompt []int32
		more   int
		want   exitcode.Code
	}{
		{nil, 1, exitcode.Usage}, {[]int32{11}, 1, exitcode.BadData}, {[]int32{-1}, 1, exitcode.BadData}, {prompt, 20, exitcode.Usage},
	} {
		_, err := l.Sample(c.prompt, SampleOptions{MaxNew: c.more})
		if exitcode.CodeOf(err) != c.want {
			t.Errorf("prompt %v and %d more: %v, want code %d", c.prompt, c.more, err, c.want)
		}
	}
	bad := make([]float32, l.Stages[0].Params()[0].Len())
	for i := range bad {
		bad[i] = float32(math.NaN())
	}
	l.Stages[0].Params()[0].SetMain(l.Device, bad)
	if _, err := l.Sample(prompt, SampleOptions{MaxNew: 1}); exitcode.CodeOf(err) != exitcode.BadData {
		t.Errorf("weights that are not numbers: %v", err)
	}
	if after := l.Device.Arena.Usage().Allocated; after != before {
		t.Errorf("%d bytes held, %d before", after, before)
	}
}

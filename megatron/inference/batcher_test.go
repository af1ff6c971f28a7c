package inference

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"monotron/csrc/cpu"
	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/drawn"
	"monotron/megatron/spec"
)

// batchModels are shapes whose passes differ: learned positions, RoPE with shared keys and a
// window, ALiBi, states.
var batchModels = map[string]func(*spec.Model){
	"gpt": func(m *spec.Model) {},
	"rope, grouped, window": func(m *spec.Model) {
		m.Position, m.RotaryPercent, m.RotaryBase, m.NumAttentionHeads, m.KVChannels = spec.PositionRope, 1, 10000, 4, 4
		m.WindowLeft = 11
	},
	"alibi": func(m *spec.Model) { m.Position = spec.PositionAlibi },
	"heads by layer": func(m *spec.Model) {
		headsByLayer(m)
		m.Context = 96
	},
	"state-space scan": func(m *spec.Model) {
		m.LinearBias, m.QKVBias, m.Normalization = false, false, spec.RMSNorm
		m.Mamba = &spec.Mamba{Heads: 4, Groups: 2, HeadDim: 18, StateDim: 5, Taps: 4, ConvBias: true, DtMin: 0.2, Layers: []bool{true, false}}
	},
	"layers of one sublayer": oneSublayer,
	"short convolution": func(m *spec.Model) {
		m.LinearBias, m.QKVBias, m.Conv = false, false, &spec.ShortConv{Taps: 3, Layers: []bool{true, false}}
	},
	"gated delta net": func(m *spec.Model) {
		m.Position, m.RotaryPercent, m.RotaryBase, m.OutputGate = spec.PositionRope, 0.5, 10000, true
		m.Delta = &spec.Delta{KeyHeads: 2, ValueHeads: 4, KeyDim: 5, ValueDim: 18, Taps: 4, Layers: []bool{true, false}}
	},
}

// oneSublayer makes a model of a scan, an MLP, an attention and an MLP.
func oneSublayer(m *spec.Model) {
	m.LinearBias, m.QKVBias, m.Normalization, m.NumLayers = false, false, spec.RMSNorm, 4
	m.Mamba = &spec.Mamba{Heads: 4, Groups: 2, HeadDim: 18, StateDim: 5, Taps: 4, ConvBias: true, DtMin: 0.2, Layers: []bool{true, false, false, false}}
	m.Sublayers = []spec.Sublayers{spec.MixerAlone, spec.MLPAlone, spec.MixerAlone, spec.MLPAlone}
}

// batchModel is tiny on a device, with space for longer texts.
func batchModel(t *testing.T, d *device.Device, precision string, change func(*spec.Model)) *Loaded {
	t.Helper()
	m := tiny(t, func(m *spec.Model) {
		m.MaxPositions = 96
		change(m)
	}).Model
	l := &Loaded{Model: m}
	if err := l.build(d, LoadOptions{Precision: precision}, 96); err != nil {
		t.Fatal(err)
	}
	for _, p := range l.Stages[0].Params() {
		p.Initialize(d, 7)
	}
	return l
}

// manyRequests is n requests of all kinds; many begin alike.
func manyRequests(n int) (list []*Request) {
	r := rand.New(rand.NewPCG(5, 6))
	common := make([]int32, 60)
	for i := range common {
		common[i] = int32(r.IntN(11))
	}
	for i := range n {
		prompt := slices.Clone(common[:r.IntN(len(common))])
		for range 1 + r.IntN(12) {
			prompt = append(prompt, int32(r.IntN(11)))
		}
		q := &Request{Prompt: prompt, MaxNew: r.IntN(20), LogProbs: r.IntN(4) - 1, PromptLogProbs: r.IntN(5) == 0}
		if q.PromptLogProbs {
			q.LogProbs = max(0, q.LogProbs)
		}
		q.Sampling = Sampling{Seed: r.Uint64(), Number: uint32(i)}
		if i%3 > 0 {
			q.Temperature = 0.5 + r.Float64()
			q.TopK, q.TopP, q.MinP = r.IntN(8), r.Float64(), r.Float64()/5
		}
		if i%4 == 0 {
			q.Presence, q.Frequency, q.Repetition, q.Bias = r.Float64(), r.Float64(), 1+r.Float64(), NewBias(map[int32]float64{3: 1})
		}
		if i%5 == 0 {
			q.Ends = []int32{int32(r.IntN(11))}
		}
		list = append(list, q)
	}
	return list
}

// answer is what a client sees of a text, but for the times.
type answer struct {
	Prompt, Tokens []Token
	Ended          Reason
}

func gather(t *testing.T, s *Stream) (a answer) {
	t.Helper()
	for a.Ended == "" {
		r, err := s.Next(context.Background())
		if err != nil {
			t.Error(err)
			return a
		}
		a.Prompt, a.Tokens, a.Ended = append(a.Prompt, r.Prompt...), append(a.Tokens, r.Tokens...), r.Ended
	}
	for _, list := range [][]Token{a.Prompt, a.Tokens} {
		for i := range list {
			list[i].At = time.Time{}
		}
	}
	return a
}

// with runs a batcher while work lasts, and checks that no block is left in use.
func with(t *testing.T, l *Loaded, c BatcherConfig, work func(b *Batcher)) Stats {
	t.Helper()
	b := newBatcher(editions{list: []*Loaded{l, nil}}, c, l.orders(), "")
	done := make(chan error, 1)
	go func() { done <- b.Run(context.Background()) }()
	work(b)
	b.Drain()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	stats := b.Stats()
	if stats.FreeBlocks != stats.Blocks {
		t.Errorf("%d of %d blocks are free when all is over", stats.FreeBlocks, stats.Blocks)
	}
	for _, kv := range b.editions.kv {
		kv.Free(l.Device)
	}
	return stats
}

// Claim (docs/serve.md): what a request gets depends on itself alone. 200 requests are
// answered one by one, then in ten mixtures of order, budget, blocks and company; every
// token, log-probability and reason is the same, to the bit.
func TestAnyLoadGivesTheSame(t *testing.T) {
	d, err := cpu.Open()
	if err != nil {
		t.Skip(err)
	}
	for name, change := range batchModels {
		for _, precision := range []string{"f32", "bf16"} {
			t.Run(name+" "+precision, func(t *testing.T) {
				l := batchModel(t, d, precision, change)
				requests := manyRequests(200)
				alone := make([]answer, len(requests))
				with(t, l, BatcherConfig{Blocks: 100, Sequences: 1, Tokens: 1000, Queue: 1}, func(b *Batcher) {
					for i, q := range requests {
						b.mu.Lock()
						b.pool.forget(0)
						b.mu.Unlock()
						alone[i] = gather(t, submit(t, b, q)[0])
					}
				})
				preempted, hits := int64(0), int64(0)
				// The first mixture has too few blocks for its sequences, so that some are preempted.
				for _, seed := range append([]uint64{2}, drawn.Part(t, []uint64{0, 1, 3, 4, 5, 6, 7, 8, 9}, 2)...) {
					s := mix(t, l, seed, requests, alone)
					preempted, hits = preempted+s.Preemptions, hits+s.PrefixHit
				}
				if preempted == 0 || hits == 0 {
					t.Errorf("%d preemptions and %d shared tokens: the mixtures do not try what they should", preempted, hits)
				}
			})
		}
	}
}

func submit(t *testing.T, b *Batcher, list ...*Request) []*Stream {
	t.Helper()
	streams, err := b.Submit(list...)
	if err != nil {
		t.Fatal(err)
	}
	return streams
}

// mix answers the requests in another order and among others, some of which leave.
func mix(t *testing.T, l *Loaded, seed uint64, requests []*Request, want []answer) Stats {
	r := rand.New(rand.NewPCG(seed, 1))
	c := BatcherConfig{Blocks: 6 + r.IntN(30), Sequences: 1 + r.IntN(16), Queue: 1000}
	c.Tokens = c.Sequences + r.IntN(50)
	return with(t, l, c, func(b *Batcher) {
		order, streams := r.Perm(len(requests)), make([]*Stream, len(requests))
		for _, i := range order {
			if r.IntN(4) == 0 { // a stranger who leaves
				other := *requests[i]
				other.Seed, other.MaxNew = r.Uint64(), 20
				stranger := submit(t, b, &other)[0]
				if r.IntN(2) == 0 {
					time.Sleep(time.Duration(r.IntN(300)) * time.Microsecond)
				}
				stranger.Cancel()
			}
			streams[i] = submit(t, b, requests[i])[0]
		}
		for i, s := range streams {
			if got := gather(t, s); !reflect.DeepEqual(got, want[i]) {
				t.Errorf("mixture %d (%+v): request %d gets\n%v, alone\n%v", seed, c, i, got, want[i])
				return
			}
		}
	})
}

// Claim: greedy ids of the batcher are those of Sample, which feeds a prompt at once, and
// log-probabilities those of a pass over the complete text within rounding; sampled ones draw
// alike.
func TestBatcherAgreesWithSample(t *testing.T) {
	for name, change := range batchModels {
		t.Run(name, func(t *testing.T) {
			l := batchModel(t, ref.Open(), "f32", change)
			with(t, l, BatcherConfig{Blocks: 40, Sequences: 4, Tokens: 9, Queue: 100}, func(b *Batcher) {
				for i := range 6 {
					q := &Request{Prompt: append(slices.Clone(prompt), int32(i)), MaxNew: 30, Sampling: Sampling{Temperature: float64(i % 2), Seed: 3}}
					want, err := l.Sample(q.Prompt, SampleOptions{MaxNew: q.MaxNew, Sampling: q.Sampling})
					if err != nil {
						t.Fatal(err)
					}
					got := gather(t, submit(t, b, q)[0])
					ids := slices.Clone(q.Prompt)
					for n, x := range got.Tokens {
						if x.ID != want.IDs[n] {
							t.Fatalf("token %d is %d, Sample's %d", n, x.ID, want.IDs[n])
						}
						ids = append(ids, x.ID)
					}
					full := logProbs(t, l, ids)
					for n, x := range got.Tokens {
						if p := full[len(q.Prompt)+n-1][x.ID]; !(x.LogProb-p < 1e-5 && p-x.LogProb < 1e-5) {
							t.Errorf("token %d has log-probability %g, in a pass over all %g", n, x.LogProb, p)
						}
					}
				}
			})
		})
	}
}

// Claim: a text that can never be admitted gets an error at once, and the one behind it its
// tokens. Check refuses such texts, so the test goes around it.
func TestWhatNeverFitsBlocksNobody(t *testing.T) {
	l := batchModel(t, ref.Open(), "f32", func(*spec.Model) {})
	with(t, l, BatcherConfig{Blocks: 3, Sequences: 2, Tokens: 8, Queue: 3}, func(b *Batcher) {
		s := newSequence(&Request{Prompt: make([]int32, 49), MaxNew: 1}, b.wake) // 3 blocks have 48 positions
		b.mu.Lock()
		b.waiting = append(b.waiting, s)
		b.texts[0]++
		b.mu.Unlock()
		next := submit(t, b, &Request{Prompt: prompt, MaxNew: 2})[0]
		if _, err := s.stream.Next(t.Context()); !errors.Is(err, errNeverFits) {
			t.Errorf("a text that never fits: %v", err)
		}
		if got := gather(t, next); len(got.Tokens) != 2 {
			t.Errorf("the text behind it: %+v", got)
		}
	})
}

// Claim: keys and values for every position of a model without a limit of its own refuse a
// number near the largest int, rather than computing with its sum.
func TestLengthsNearTheLargestInt(t *testing.T) {
	l := batchModel(t, ref.Open(), "f32", func(*spec.Model) {})
	l.MaxContext = 0
	b := newBatcher(editions{list: []*Loaded{l, nil}}, BatcherConfig{Blocks: 3, Sequences: 2, Tokens: 8, Queue: 3}, l.orders(), "")
	for _, n := range []int{math.MaxInt, math.MaxInt - len(prompt), math.MaxInt - 16, 44} {
		want := fmt.Sprintf("5 prompt tokens and %d tokens to generate exceed the 48 positions of the KV cache; request fewer tokens", n)
		if err := b.Check(&Request{Prompt: prompt, MaxNew: n}); fmt.Sprint(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Claim: a batcher that fails, or is asked to end, answers everybody.
func TestEndsOfABatcher(t *testing.T) {
	l := batchModel(t, ref.Open(), "f32", func(*spec.Model) {})
	b := newBatcher(editions{list: []*Loaded{l, nil}}, BatcherConfig{Blocks: 20, Sequences: 2, Tokens: 8, Queue: 3}, l.orders(), "")
	for _, c := range []struct {
		q    *Request
		want string
	}{
		{&Request{Prompt: nil, MaxNew: 1}, "the prompt has no tokens; give at least one"},
		{&Request{Prompt: []int32{99}, MaxNew: 1}, "token 0 of the prompt is 99; the model's vocabulary has 11 ids"},
		{&Request{Prompt: prompt, MaxNew: 92}, "5 prompt tokens and 92 tokens to generate exceed the model's 96 positions; generate at most 91"},
		{&Request{Prompt: prompt, MaxNew: math.MaxInt}, "5 prompt tokens and 9223372036854775807 tokens to generate exceed the model's 96 positions; generate at most 91"},
		{&Request{Prompt: prompt, MaxNew: -1}, "the number of tokens to generate is -1; give 0 or more"},
	} {
		if _, err := b.Submit(c.q); fmt.Sprint(err) != c.want {
			t.Errorf("%v: %v, want %q", c.q, err, c.want)
		}
	}
	q := &Request{Prompt: prompt, MaxNew: 5}
	submit(t, b, q, q, q)
	if _, err := b.Submit(q); !errors.Is(err, ErrBusy) {
		t.Errorf("a fourth in a queue of three: %v", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("a rank has died")
	cancel(why)
	if err := b.Run(ctx); !errors.Is(err, why) {
		t.Errorf("Run ends with %v", err)
	}
	if _, err := b.Submit(q); !errors.Is(err, why) {
		t.Errorf("a request after the end: %v", err)
	}
}

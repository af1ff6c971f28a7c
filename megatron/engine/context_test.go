package engine

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/drawn"
	"monotron/megatron/config"
	"monotron/megatron/spec"
	"monotron/mpu/comm"
	"monotron/mpu/ranks"
	"monotron/mpu/topology"
)

// contextLayouts are ways to share sequences, with other parallelism around them.
var contextLayouts = []config.Layout{
	{CP: 2, CPCommType: []string{"all_gather"}}, {CP: 2}, {CP: 2, CPCommType: []string{"a2a"}},
	{CP: 4, CPCommType: []string{"all_gather"}}, {CP: 4}, {CP: 4, CPCommType: []string{"a2a"}}, {CP: 4, CPCommType: []string{"a2a+p2p"}, HierarchicalCP: []int{2, 2}},
	{CP: 4, CPCommType: []string{"p2p", "a2a+p2p", "all_gather", "a2a"}, HierarchicalCP: []int{2, 2}},
	{CP: 2, TP: 2, SequenceParallel: true}, {CP: 2, TP: 2, PP: 2, VP: 2, CPCommType: []string{"a2a"}}, {CP: 2, DP: 2, DistributedOptimizer: true},
	{CP: 2, CPCommType: []string{"all_gather"}, ZigZagPerDocument: true}, {CP: 2, ZigZagPerDocument: true}, {CP: 2, CPCommType: []string{"a2a"}, ZigZagPerDocument: true},
	{CP: 4, ZigZagPerDocument: true}, {CP: 4, CPCommType: []string{"a2a+p2p"}, HierarchicalCP: []int{2, 2}, ZigZagPerDocument: true},
	{CP: 2, TP: 2, SequenceParallel: true, ZigZagPerDocument: true}, {CP: 2, PP: 2, CPCommType: []string{"all_gather"}, ZigZagPerDocument: true},
}

// contextModels are what masks queries and keys, each by what it changes.
var contextModels = map[string]func(*config.Step){
	"plain":     func(*config.Step) {},
	"dropout":   func(c *config.Step) { c.Model.AttentionDropout, c.Model.HiddenDropout = 0.2, 0.1 },
	"window":    func(c *config.Step) { c.Model.WindowLeft = 5 },
	"alibi":     func(c *config.Step) { c.Model.Position = spec.PositionAlibi },
	"per token": func(c *config.Step) { c.CalculatePerTokenLoss = true },
	"rope, QK norm": func(c *config.Step) {
		c.Model.Position, c.Model.QKNorm, c.Model.RotaryBase, c.Model.RotaryPercent = spec.PositionRope, true, 10000, 1
	},
	"fewer groups": func(c *config.Step) { c.Model.NumQueryGroups = 2 },
	"heads by layer": func(c *config.Step) {
		c.Model.Position, c.Model.QKNorm, c.Model.RotaryBase, c.Model.RotaryPercent = spec.PositionRope, true, 10000, 1
		c.Model.ValueNorm, c.Model.KeysAreValues, c.Model.LayerScalar, c.Model.WindowLeft = true, true, true, 5
		c.Model.Windowed = make([]bool, c.Model.NumLayers)
		c.Model.Windowed[0] = true
		c.Model.Full = &spec.FullAttention{KVChannels: c.Model.KVChannels + 2, NumQueryGroups: c.Model.NumQueryGroups}
	},
	"short convolutions": func(c *config.Step) {
		c.Model.LinearBias, c.Model.QKVBias = false, false
		c.Model.Conv = &spec.ShortConv{Taps: 3, Layers: make([]bool, c.Model.NumLayers)}
		c.Model.Conv.Layers[0], c.Model.Conv.Layers[c.Model.NumLayers-1] = true, true
	},
	"state-space scans": func(c *config.Step) {
		c.Model.LinearBias, c.Model.QKVBias, c.Model.Normalization = false, false, spec.RMSNorm
		c.Model.Mamba = &spec.Mamba{Heads: 8, Groups: 1, HeadDim: 3, StateDim: 2, Taps: 3, ConvBias: true, DtMin: 0.2, Layers: make([]bool, c.Model.NumLayers)}
		c.Model.Mamba.Layers[0], c.Model.Mamba.Layers[c.Model.NumLayers-1] = true, true
	},
	"state-space scans of groups": func(c *config.Step) {
		c.Model.LinearBias, c.Model.QKVBias, c.Model.Normalization = false, false, spec.RMSNorm
		c.Model.Mamba = &spec.Mamba{Heads: 8, Groups: 4, HeadDim: 3, StateDim: 2, Taps: 3, DtMin: 0.2, Layers: make([]bool, c.Model.NumLayers)}
		c.Model.Mamba.Layers[0], c.Model.Mamba.Layers[c.Model.NumLayers-1] = true, true
	},
	"delta nets": func(c *config.Step) {
		c.Model.Delta = &spec.Delta{KeyHeads: 4, ValueHeads: 8, KeyDim: 3, ValueDim: 2, Taps: 3, Layers: make([]bool, c.Model.NumLayers)}
		c.Model.Delta.Layers[0], c.Model.Delta.Layers[c.Model.NumLayers-1] = true, true
	},
}

func contextConfig(l config.Layout, change func(*config.Step)) config.Step {
	c := layoutConfig(l)
	c.SeqLength, c.Model.MaxPositions = 32, 32
	change(&c)
	return c
}

// unevenBatch has documents that do not see each other and masks that leave some stretches
// of a sequence with few tokens, or none.
func unevenBatch(rows, seq int) []*Micro {
	micros := testBatch(rows, 2, seq)
	for k, m := range micros {
		for j := range m.Tokens {
			start := int32(0)
			starts := make([]int32, seq)
			for i := range seq {
				if i%(7+k+2*j) == 3 {
					start = int32(i)
				}
				starts[i] = start
				m.PositionIDs[j][i] = int32(i) - start
				if i > seq/2+k || i%5 == j {
					m.LossMask[j][i] = 0
				}
			}
			m.DocStart = append(m.DocStart, starts)
		}
	}
	return micros
}

// sharedRun is what training shows: losses and gradient norms of each step, the loss after
// them, and the residual stream of the first micro-batch before: [depth][position of a sample].
type sharedRun struct {
	numbers []float64
	stream  map[int]map[string][]byte
}

func runShared(t *testing.T, c config.Step, open func() (*device.Device, error), batch []*Micro, steps int) (run sharedRun) {
	t.Helper()
	run.stream = map[int]map[string][]byte{}
	var mu sync.Mutex
	err := ranks.Run(Ranks(&c, open), func(r *ranks.Rank) error {
		e, mine, err := begun(r, c, batch)
		if err != nil {
			return err
		}
		here := e.Positions(mine[0])
		if c.Layout.SequenceParallel {
			here = here.Cut(r.Coordinates.TP, r.Sizes.TP)
		}
		observer := Observer{Layer: func(depth int, x device.Tensor) {
			mu.Lock()
			defer mu.Unlock()
			if r.Coordinates.DP > 0 || e.Micro() > 0 {
				return
			}
			if run.stream[depth] == nil {
				run.stream[depth] = map[string][]byte{}
			}
			raw := make([]byte, x.Bytes())
			r.Device.Read(raw, x)
			b, at := len(mine[0].Tokens), 0
			row := len(raw) / (int(here.Len()) * b)
			for _, span := range here {
				for i := range int(span.N) {
					for j := range b {
						run.stream[depth][fmt.Sprint(int(span.From)+i, " of sample ", j)] = raw[at : at+row]
						at += row
					}
				}
			}
		}}
		if err := e.Peek(mine, observer); err != nil {
			return err
		}
		for range steps {
			result, err := e.Step(mine)
			if err != nil {
				return err
			}
			if r.Last() {
				run.numbers = append(run.numbers, result.Loss, result.Update.GradNorm)
			}
		}
		sum, tokens, err := e.Loss(mine)
		if r.Last() {
			run.numbers = append(run.numbers, sum, tokens)
		}
		return err
	})
	if err != nil {
		t.Fatalf("%+v: %v", c.Layout, err)
	}
	return run
}

// Claim: ranks that share sequences train what one rank trains, by every exchange, whatever
// masks queries from keys, with documents and uneven loss masks (docs/context-parallel.md).
func TestContextParallelTrainsAlike(t *testing.T) {
	open := func() (*device.Device, error) { return ref.Open(), nil }
	for name, change := range contextModels {
		batch := unevenBatch(4, 32)
		want := runShared(t, contextConfig(config.Layout{}, change), open, batch, 2)
		for _, l := range drawn.Part(t, contextLayouts, 4) {
			c := contextConfig(l, change)
			if name == "fewer groups" && (slices.Contains(l.CPCommType, "a2a") || l.TP > 1 && len(l.CPCommType) > 0) {
				continue // too few for an exchange of heads
			}
			t.Run(fmt.Sprintf("%s %+v %v by document %v", name, l.Sizes(), l.CPCommType, l.ZigZagPerDocument), func(t *testing.T) {
				got := runShared(t, c, open, batch, 2)
				for i := range want.numbers {
					bound := []float64{1e-5, 1e-4}[i%2] // of a loss; of a gradient norm
					if !(math.Abs(got.numbers[i]-want.numbers[i]) <= bound*math.Abs(want.numbers[i])) {
						t.Errorf("number %d: %.8g, on one rank %.8g", i, got.numbers[i], want.numbers[i])
					}
				}
			})
		}
	}
}

// Claim: with all_gather and a2a the forward pass has the bits of one rank: each query's
// keys are added up in one order. (A ring joins blocks of keys: it rounds at other points.)
func TestContextParallelForwardBits(t *testing.T) {
	open := func() (*device.Device, error) { return ref.Open(), nil }
	for name, change := range contextModels {
		batch := unevenBatch(4, 32)
		want := runShared(t, contextConfig(config.Layout{}, change), open, batch, 0)
		for _, l := range contextLayouts {
			ordered := len(l.CPCommType) == 1 && (l.CPCommType[0] == "all_gather" || l.CPCommType[0] == "a2a") && l.TP <= 1
			if !ordered || name == "fewer groups" && l.CP == 4 && l.CPCommType[0] == "a2a" {
				continue
			}
			sameStream(t, fmt.Sprintf("%s %+v %v by document %v", name, l.Sizes(), l.CPCommType, l.ZigZagPerDocument), runShared(t, contextConfig(l, change), open, batch, 0), want)
		}
	}
}

// Claim: micro-batches of one sample, whose documents are then cut exactly as they lie, short
// ones and ones that 2·cp does not divide, train what one rank trains; forward its bits.
func TestDocumentsAreCutOneByOne(t *testing.T) {
	open := func() (*device.Device, error) { return ref.Open(), nil }
	var batch []*Micro
	for _, m := range unevenBatch(4, 32) {
		for j := range m.Tokens {
			batch = append(batch, &Micro{Tokens: m.Tokens[j:][:1], Labels: m.Labels[j:][:1], LossMask: m.LossMask[j:][:1], PositionIDs: m.PositionIDs[j:][:1],
				DocStart: m.DocStart[j:][:1], Samples: m.Samples[j:][:1]})
		}
	}
	var layouts []config.Layout
	for _, l := range contextLayouts {
		if l.ZigZagPerDocument && l.DP <= 1 {
			layouts = append(layouts, l)
		}
	}
	for name, change := range contextModels {
		want := runShared(t, contextConfig(config.Layout{}, change), open, batch, 2)
		for _, l := range drawn.Part(t, layouts, 3) {
			kind := strings.Join(l.CPCommType, " ")
			if name == "fewer groups" && strings.HasPrefix(kind, "a2a") {
				continue
			}
			where := fmt.Sprintf("%s %+v %s", name, l.Sizes(), kind)
			got := runShared(t, contextConfig(l, change), open, batch, 2)
			for i := range want.numbers {
				if bound := []float64{1e-5, 1e-4}[i%2]; !(math.Abs(got.numbers[i]-want.numbers[i]) <= bound*math.Abs(want.numbers[i])) {
					t.Errorf("%s: number %d is %.8g, on one rank %.8g", where, i, got.numbers[i], want.numbers[i])
				}
			}
			if (kind == "all_gather" || kind == "a2a") && l.PP <= 1 {
				sameStream(t, where, got, want)
			}
		}
	}
}

// sameStream compares bits; it fails where nothing was seen.
func sameStream(t *testing.T, name string, got, want sharedRun) {
	t.Helper()
	if len(want.stream) == 0 || len(got.stream) != len(want.stream) {
		t.Fatalf("%s: %d depths were seen, on one rank %d", name, len(got.stream), len(want.stream))
	}
	for depth, rows := range want.stream {
		differ, first := 0, ""
		for at, row := range rows {
			if !slices.Equal(got.stream[depth][at], row) {
				differ++
				first = at
			}
		}
		if differ > 0 || len(got.stream[depth]) != len(rows) {
			t.Errorf("%s: %d of %d rows differ from one rank's at depth %d, as that of position %s", name, differ, len(rows), depth, first)
			return
		}
	}
}

// counted is an engine that adds up what a rank sends.
type counted struct {
	comm.Engine
	ranks int64
	sent  *int64
}

func (c counted) Start(x *comm.Collective) comm.Work {
	switch x.Op {
	case comm.AllGather:
		*c.sent += (c.ranks - 1) * x.In.Bytes()
	case comm.ReduceScatter:
		*c.sent += (c.ranks - 1) * x.Out.Bytes()
	default:
		for _, t := range x.Transfers {
			if t.Send {
				*c.sent += t.T.Bytes()
			}
		}
	}
	return c.Engine.Start(x)
}

// Claim: what a rank sends for attention is what docs/context-parallel.md says, of a pass
// forward and of a step.
func TestContextParallelBytes(t *testing.T) {
	const s, b, micros = 32, 2, 2
	for _, l := range contextLayouts {
		if len(l.CPCommType) > 1 || l.TP > 1 || l.DP > 1 || l.PP > 1 {
			continue
		}
		c := contextConfig(l, func(c *config.Step) { c.Precision = config.BF16 })
		m := &c.Model
		n, cp := int64(s/l.CP), int64(l.CP)
		keys, grads, queries := 2*int64(m.NumQueryGroups*m.KVChannels)*2, 2*int64(m.NumQueryGroups*m.KVChannels)*4, int64(m.NumAttentionHeads*m.KVChannels)*2
		forward, backward := (cp-1)*n*keys, (cp-1)*n*keys+cp*n*grads
		switch {
		case len(l.CPCommType) == 0:
		case l.CPCommType[0] == "all_gather":
			backward = (cp - 1) * n * (keys + grads)
		case l.CPCommType[0] == "a2a":
			forward = (cp - 1) * n * (keys + 2*queries) / cp
			backward = forward
		default:
			heads, rows := int64(l.HierarchicalCP[0]), int64(l.HierarchicalCP[1])
			exchanged := (heads - 1) * n * (keys + 2*queries) / heads
			forward, backward = exchanged+(rows-1)*n*keys, exchanged+(rows-1)*n*keys+rows*n*grads
		}
		err := ranks.Run(Ranks(&c, func() (*device.Device, error) { return ref.Open(), nil }), func(r *ranks.Rank) error {
			var sent int64
			r.Groups[topology.CP] = r.Groups[topology.CP].Over(func(e comm.Engine) comm.Engine { return counted{e, cp, &sent} })
			schedule, err := c.Optimizer.Schedule(testSteps, 0, testSamples)
			if err != nil {
				return err
			}
			e, err := New(r, c, schedule)
			if err != nil {
				return err
			}
			if err := e.Initialize(); err != nil {
				return err
			}
			batch := unevenBatch(b*micros, s)
			if err := e.Peek(batch, Observer{}); err != nil {
				return err
			}
			if want := forward * b * micros * int64(m.NumLayers); sent != want {
				t.Errorf("%v: rank %d sends %d bytes forward, by the formula %d", l.CPCommType, r.Number, sent, want)
			}
			sent = 0
			if _, err = e.Step(batch); err != nil {
				return err
			}
			if want := (forward + backward) * b * micros * int64(m.NumLayers); sent != want {
				t.Errorf("%v: rank %d sends %d bytes in a step, by the formula %d", l.CPCommType, r.Number, sent, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

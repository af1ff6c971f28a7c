package engine

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/megatron/config"
	"monotron/megatron/model"
	"monotron/megatron/spec"
	"monotron/mpu/ranks"
)

// expertConfig has 4 experts in each layer, two of them on each of two ranks.
func expertConfig(dispatcher string) config.Step {
	c := tinyConfig()
	c.Model.Experts = &spec.Experts{Num: 4, TopK: 2, FFNHiddenSize: 12, ScoreFunction: spec.ScoreSoftmax, Layers: slices.Repeat([]bool{true}, c.Model.NumLayers),
		Balancing: []string{spec.AuxLoss}, AuxLossCoeff: []float64{0.01}, ZLossCoeff: 0.001, DropPolicy: spec.DropByWeight, Dispatcher: dispatcher}
	c.Layout = config.Layout{WorldSize: 2, DP: 2, EP: 2}
	return c
}

// led is what a rank saw of a step whose routers prefer experts.
type led struct {
	result Result
	kept   int64 // bytes of activations at the end of forward
}

// lead runs a step on two ranks, with biases of the routers that send every token to two experts.
func lead(t *testing.T, c config.Step, first, second int) []led {
	t.Helper()
	all := make([]led, 2)
	batch := testBatch(2, 1, c.SeqLength)
	err := ranks.Run(Ranks(&c, func() (*device.Device, error) { return ref.Open(), nil }), func(r *ranks.Rank) error {
		e, err := newEngineOf(r, c)
		if err != nil {
			return err
		}
		if err := e.Initialize(); err != nil {
			return err
		}
		for _, p := range e.Params {
			if strings.HasSuffix(p.Name, "router.bias") {
				bias := make([]float32, 4)
				bias[first], bias[second] = 60, 50
				device.WriteSlice(r.Device, p.Value, bias)
			}
		}
		var mine led
		observer := Observer{Done: func(*model.Pass, *model.Output) { mine.kept = r.Device.Arena.Usage().Now[device.Activations] }}
		mine.result, err = e.StepSeen(batch[r.Coordinates.DP:][:1], observer)
		all[r.Number] = mine
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestEveryTokenToOneRank: routers that send all tokens to the experts of one rank, and none
// to the other's, are a step like others; the rank that has them keeps the memory that was
// planned as the most, and the other one none.
func TestEveryTokenToOneRank(t *testing.T) {
	for _, dispatcher := range []string{spec.AllToAllDispatcher, spec.AllGatherDispatcher} {
		c := expertConfig(dispatcher)
		full, none := lead(t, c, 0, 1), lead(t, c, 2, 3)
		tokens := float64(2 * c.SeqLength)
		for _, layer := range full[0].result.Mixtures.Tokens {
			if !slices.Equal(layer, []float64{tokens, tokens, 0, 0}) {
				t.Errorf("%s: tokens of the experts: %g", dispatcher, layer)
			}
		}
		if r := full[0].result; r.Update.Skipped || !(r.Loss > 0) || !(r.Update.GradNorm > 0) {
			t.Errorf("%s: the step: %+v", dispatcher, r)
		}
		_, most := c.Model.Slots(c.SeqLength, c.Layout.Sizes())
		layers := int64(c.Model.NumLayers)
		reported, more := layers*most*c.Model.SlotBytes(1, 4), full[0].kept-none[0].kept
		if slack := layers * 12 * 64; more > reported+slack || more < reported-layers*c.Model.SlotBytes(1, 4)-slack-layers*most*8 {
			t.Errorf("%s: a rank with all tokens keeps %d bytes more than one with none, told were %d", dispatcher, more, reported)
		}
	}
}

// TestOutOfMemoryAmongExperts: the error names the layer, and how many choices came.
func TestOutOfMemoryAmongExperts(t *testing.T) {
	c := expertConfig(spec.AllToAllDispatcher)
	c.SeqLength, c.Model.MaxPositions, c.Model.Experts.FFNHiddenSize = 1024, 1024, 8192 // 1024 tokens twice: 64 MiB
	err := ranks.Run(Ranks(&c, func() (*device.Device, error) {
		return ref.Open().Through(func(b device.Backend) device.Backend { return &short{Backend: b, left: 64 << 20} }), nil
	}), func(r *ranks.Rank) (err error) {
		defer device.CatchOutOfMemory(&err)
		e, err := newEngineOf(r, c)
		if err != nil {
			return err
		}
		if err := e.Initialize(); err != nil {
			return err
		}
		_, err = e.Step(testBatch(2, 1, c.SeqLength)[r.Coordinates.DP:][:1])
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "the memory was for the experts of layer 0, where tokens chose the experts of this rank ") || !strings.Contains(err.Error(), " times; an even share would be 2048 times") {
		t.Errorf("%v", err)
	}
}

// Claim: the second pass of a router counts for the global loss what its first pass did, also
// where a pipeline has sent later micro-batches through the layer in between: to the bit the
// weights are those of one rank that computes nothing twice.
func TestGlobalLossOfSecondPasses(t *testing.T) {
	of := func(l config.Layout, r model.Recompute) config.Step {
		c := layoutConfig(l)
		c.Model.Experts = expertConfig(spec.AllGatherDispatcher).Model.Experts
		c.Model.Experts.Layers = slices.Repeat([]bool{true}, c.Model.NumLayers)
		c.Model.Experts.Balancing, c.Model.Experts.AuxLossCoeff = []string{spec.GlobalAuxLoss}, []float64{1}
		c.Model.Tied = false       // ends of a pipeline add up the table's gradient in another order
		c.Optimizer.ClipGrad = 0   // so do stages the norm
		c.Optimizer.AdamEps = 1e-8 // the move of a gradient near zero is as large as others
		c.Recompute = r
		return c
	}
	norms, want := trainWeights(t, of(config.Layout{}, model.Recompute{}), 3)
	weak := of(config.Layout{}, model.Recompute{})
	weak.Model.Experts.AuxLossCoeff = []float64{0.5}
	if _, other := trainWeights(t, weak, 3); reflect.DeepEqual(other, want) {
		t.Fatal("the loss does not matter")
	}
	for _, r := range []model.Recompute{{Granularity: "full", Method: "uniform", NumLayers: 1}, {Granularity: "full", Method: "uniform", NumLayers: 2},
		{Granularity: "full", Method: "block", NumLayers: 1}, {Granularity: "selective", Modules: []string{"moe"}}} {
		for _, l := range []config.Layout{{PP: 2}, {PP: 4}, {PP: 2, VP: 2}, {PP: 2, Schedule: "gpipe"}, {Schedule: "gpipe"}} {
			t.Run(fmt.Sprint(r.Granularity, r.Method, r.NumLayers, "/", l.PP, l.VP, l.Schedule), func(t *testing.T) {
				got, weights := trainWeights(t, of(l, r), 3)
				if !reflect.DeepEqual(weights, want) {
					t.Errorf("other weights than one rank's; gradient norms %v, of one rank %v", got, norms)
				}
			})
		}
	}
}

// short is a backend with little memory.
type short struct {
	device.Backend
	left int64
}

func (s *short) Alloc(bytes int64) (unsafe.Pointer, error) {
	if s.left -= bytes; s.left < 0 {
		return nil, errors.New("no more")
	}
	return s.Backend.Alloc(bytes)
}

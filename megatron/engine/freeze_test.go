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
	"monotron/internal/exitcode"
	"monotron/megatron/config"
	"monotron/megatron/optimizer"
	"monotron/mpu/ranks"
)

// frozenModel trains layer 2, the final norm and the positions alone.
func frozenModel(l config.Layout) config.Step {
	c := layoutConfig(l)
	c.FreezeParameters = []string{"embedding.word_embeddings.*", "decoder.layers.[01]*", "decoder.layers.3.*"}
	return c
}

// trainWeights gives the norms of the gradients and the weights of the complete model.
func trainWeights(t *testing.T, c config.Step, steps int) (norms []float64, weights map[string][]float32) {
	t.Helper()
	var mu sync.Mutex
	weights = map[string][]float32{}
	results, _ := trainLayout(t, c, steps, func(e *Engine) {
		mu.Lock()
		defer mu.Unlock()
		for _, w := range e.Weights() {
			name, n := strings.TrimPrefix(w.Name, optimizer.StoredModel), int64(1)
			for _, size := range w.Global {
				n *= size
			}
			if weights[name] == nil {
				weights[name] = make([]float32, n)
			}
			values := device.ReadSlice[float32](e.device, w.Tensor)
			for _, p := range w.Pieces {
				p.Runs(w.Global, func(at, local, n int64) { copy(weights[name][at:at+n], values[local:]) })
			}
		}
	})
	for _, r := range results {
		norms = append(norms, r.Update.GradNorm)
	}
	return norms, weights
}

// Claim: under every layout and sharding frozen parameters keep their first bits, the
// others are trained as on one rank, and the norm is that of their gradients alone.
func TestFrozenParametersUnderLayouts(t *testing.T) {
	c := frozenModel(config.Layout{})
	_, start := trainWeights(t, c, 0)
	norms, want := trainWeights(t, c, 3)
	all, _ := trainWeights(t, layoutConfig(config.Layout{}), 1)
	if norms[0] >= all[0] {
		t.Errorf("the norm without the frozen is %g, of all %g", norms[0], all[0])
	}
	for _, l := range []config.Layout{{}, {TP: 2, SequenceParallel: true}, {PP: 2}, {PP: 2, VP: 2}, {DP: 2}, {DP: 2, Sharding: "optim"}, {DP: 4, Sharding: "optim_grads"},
		{DP: 2, Sharding: "optim_grads_params", OverlapGradReduce: true, OverlapParamGather: true}, {TP: 2, PP: 2, DP: 2, Sharding: "optim_grads_params"}} {
		t.Run(fmt.Sprintf("%+v %s", l.Sizes(), l.Sharding), func(t *testing.T) {
			c := frozenModel(l)
			norm, got := trainWeights(t, c, 3)
			for i := range norms {
				if math.Abs(norm[i]-norms[i]) > 1e-4*norms[i] {
					t.Errorf("step %d: norm %g, on one rank %g", i+1, norm[i], norms[i])
				}
			}
			for name, values := range start {
				if c.Freezes(name) != slices.Equal(got[name], values) {
					t.Errorf("%s, frozen %t: the start and what training left are equal: %t", name, c.Freezes(name), slices.Equal(got[name], values))
				}
				if off := farthest(got[name], want[name]); off > 3*c.Optimizer.LR*1e-2 {
					t.Errorf("%s is %g off one rank's", name, off)
				}
			}
		})
	}
}

// farthest is by root mean square: AdamW takes full steps on rounding noise, and a few
// elements may go the other way.
func farthest(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		sum += math.Pow(float64(a[i]-b[i]), 2)
	}
	return math.Sqrt(sum / float64(len(a)))
}

// Claim: what the patterns leave is counted over the complete model, and an invalid pattern, or
// one that matches nothing or leaves nothing, is a usage error before memory is taken.
func TestFreezePatterns(t *testing.T) {
	c := frozenModel(config.Layout{})
	f, err := c.Freezing()
	if err != nil || f.All != 4*3280+32+128+512 || f.Trained != 3280+32+128 || f.Frozen[0] != "embedding.word_embeddings.weight" { // a layer of 16 has 3280, 32 words, 8 positions
		t.Errorf("%+v, %v", f, err)
	}
	for _, bad := range []struct {
		patterns []string
		say      string
	}{
		{[]string{"embedding.*", "decoder.layer.1.*"}, `"decoder.layer.1.*" matches no parameter of the model; names are like `},
		{[]string{"embedding.word_embedings.weight"}, "names are like embedding.word_embeddings.weight"},
		{[]string{"[", "*"}, `"[" is not a shell pattern`},
		{[]string{"*"}, "leaves no parameter to train"},
	} {
		c.FreezeParameters = bad.patterns
		s, err := c.Optimizer.Schedule(testSteps, 0, testSamples)
		if err != nil {
			t.Fatal(err)
		}
		_, err = New(ranks.Alone(ref.Open()), c, s)
		if err == nil || exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), bad.say) {
			t.Errorf("%q: %v, want %q", bad.patterns, err, bad.say)
		}
	}
}

//go:build cgo && linux

package engine

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"monotron/csrc/cuda"
	"monotron/csrc/cuda/fake"
	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/config"
	"monotron/mpu/ranks"
)

// choice is what a rank's ChooseAttention came to.
type choice struct {
	fused bool
	note  string
	err   error
}

// choose lets every rank of c's layout choose, for the micro-batches that are coming there.
func choose(t *testing.T, c config.Step, coming func(rank int) MicroShapes) []choice {
	t.Helper()
	all := make([]choice, c.Layout.Sizes().World())
	var mu sync.Mutex
	err := ranks.Run(Ranks(&c, func() (*device.Device, error) { return cuda.Open(0) }), func(r *ranks.Rank) error {
		e, err := newEngineOf(r, c)
		if err != nil {
			return err
		}
		var got choice
		got.err = e.ChooseAttention(coming(r.Number), func(format string, args ...any) { got.note = fmt.Sprintf(format, args...) })
		got.fused = e.device.FusedWorkspace() > 0
		mu.Lock()
		all[r.Number] = got
		mu.Unlock()
		return r.World().Barrier()
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Claim: ranks take cuDNN's attention only where none refuses it, so that a layout cannot
// change the numbers; the log names the rank that does and its reason, which ends every rank
// where --attention-backend asks for cuDNN's. Stages without layers have no say.
func TestRanksChooseAttentionAlike(t *testing.T) {
	fake.Use(t)
	step := func(l config.Layout, backend string) config.Step {
		c := layoutConfig(l)
		c.Precision, c.AttentionBackend, c.Model.HiddenSize, c.Model.KVChannels = config.BF16, backend, 32, 8
		return c
	}
	inOneOrder := func(backend string) config.Step {
		c := step(config.Layout{DP: 2}, backend)
		c.Leaves, c.LeafSamples = 4, 4
		return c
	}
	documentsOn := func(on func(rank int) bool) func(int) MicroShapes {
		return func(rank int) MicroShapes { return MicroShapes{Batches: []int64{1}, Documents: on(rank)} }
	}
	nobody := documentsOn(func(int) bool { return false })
	first := documentsOn(func(rank int) bool { return rank == 0 })
	last := documentsOn(func(rank int) bool { return rank == 1 })
	all := documentsOn(func(int) bool { return true })
	for name, x := range map[string]struct {
		c      config.Step
		coming func(int) MicroShapes
		fused  []bool // by rank
		text   string // of the note or the error
	}{
		"none refuses":         {step(config.Layout{DP: 2}, "auto"), nobody, []bool{true, true}, "with a workspace of"},
		"one refuses":          {step(config.Layout{DP: 2}, "auto"), last, []bool{false, false}, "rank 1 refuses cuDNN (1 of 2 ranks refuse it, and all ranks must use the same kernels): cuDNN is not used for documents that do not attend to each other"},
		"all refuse":           {step(config.Layout{TP: 2}, "auto"), all, []bool{false, false}, "not cuDNN's (fused): cuDNN is not used for documents that do not attend to each other"},
		"one, asked for":       {step(config.Layout{DP: 2}, "fused"), last, []bool{false, false}, "cannot run here: rank 1 refuses cuDNN (1 of 2 ranks refuse it, and all ranks must use the same kernels): cuDNN is not used for documents that do not attend to each other"},
		"no layers there":      {step(config.Layout{PP: 2, StageString: "E|ttttL"}, "auto"), nobody, []bool{false, true}, "(rank 1; none of the 2 ranks refuses cuDNN)"},
		"nor a say":            {step(config.Layout{PP: 2, StageString: "E|ttttL"}, "fused"), first, []bool{false, true}, "as --attention-backend fused requests"},
		"complete sequences":   {step(config.Layout{CP: 2, CPCommType: []string{"a2a"}}, "fused"), nobody, []bool{true, true}, "as --attention-backend fused requests"},
		"parts of sequences":   {step(config.Layout{CP: 2}, "auto"), nobody, []bool{false, false}, "not cuDNN's (fused): cuDNN's attention needs complete sequences"},
		"parts, asked for":     {step(config.Layout{CP: 2, CPCommType: []string{"a2a", "a2a", "p2p", "a2a"}}, "fused"), nobody, []bool{false, false}, "use --cp-comm-type a2a in all layers"},
		"one order":            {inOneOrder("auto"), nobody, []bool{false, false}, "not cuDNN's (fused): with --layout-invariant every sum has the same order"},
		"one order, asked for": {inOneOrder("fused"), nobody, []bool{false, false}, "with --layout-invariant every sum has the same order"},
	} {
		t.Run(name, func(t *testing.T) {
			for rank, got := range choose(t, x.c, x.coming) {
				text := got.note
				if got.err != nil {
					text = got.err.Error()
				}
				if got.fused != x.fused[rank] || !strings.Contains(text, x.text) {
					t.Errorf("rank %d: fused %v, %q; want %v, %q", rank, got.fused, text, x.fused[rank], x.text)
				}
				if ends := strings.HasSuffix(name, ", asked for"); (got.err != nil) != ends || ends && exitcode.CodeOf(got.err) != exitcode.Usage {
					t.Errorf("rank %d: error %v", rank, got.err)
				}
			}
		})
	}
}

// Claim: a trial comes through a word as it was, and a reason of all ranks needs none named.
func TestTrialsAsWords(t *testing.T) {
	for _, trial := range []attentionTrial{{layerless, ""}, {passed, "0.3 %"}, {refused, "documents"}} {
		if got := trialOf(trial.word()); got != trial {
			t.Errorf("%v arrives as %v", trial, got)
		}
	}
	if err := refusalOf([]attentionTrial{{layerless, ""}, {refused, "no"}, {refused, "no"}}); err == nil || err.Error() != "no" {
		t.Error(errors.Join(errors.New("one reason of all needs no rank"), err))
	}
}

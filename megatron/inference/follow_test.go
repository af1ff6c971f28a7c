package inference

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/csrc/ref"
	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
	"monotron/mpu/ranks"
)

// iterations saves some of one model with weights of their own, and gives what each says
// after the prompt.
func iterations(t *testing.T, dir string, numbers ...int64) (says map[string][]int32, model *Loaded) {
	t.Helper()
	d := ref.Open()
	t.Cleanup(d.Arena.Close)
	l, says := batchModel(t, d, "f32", func(m *spec.Model) { m.NumAttentionHeads, m.NumQueryGroups, m.KVChannels = 4, 4, 4 }), map[string][]int32{}
	for _, n := range numbers {
		for _, p := range l.Stages[0].Params() {
			p.Initialize(l.Device, uint64(n))
		}
		save(t, dir, l, n, stored{Model: l.Model, Precision: "f32", SeqLength: 96})
		l.loaded(n)
		says[l.Weights] = sample(t, l, SampleOptions{MaxNew: 80})
	}
	return says, l
}

// Claim (docs/serve.md): a text is that of the weights that its stream names, all of it, also
// where newer ones come while it is under way; nothing computed by others is used for it.
func TestFollowsARun(t *testing.T) {
	dir := t.TempDir()
	says, _ := iterations(t, dir, 1, 2, 3)
	for _, l := range []Layout{{}, {TP: 2}, {PP: 2}, {TP: 2, PP: 2}} {
		served(t, l, dir, LoadOptions{Step: 1}, func(b *Batcher) {
			q := &Request{Prompt: prompt, MaxNew: 80}
			var streams []*Stream
			for _, step := range []int64{1, 2, 3, 2} {
				if step > 1 || len(streams) > 0 {
					if err := b.Reload(context.Background(), step); err != nil {
						t.Fatal(err)
					}
				}
				streams = append(streams, submit(t, b, q, q)...)
				if r, err := streams[len(streams)-1].Next(context.Background()); err != nil || r.Ended != "" {
					t.Fatal(r.Ended, err)
				} else if got := idsOf(r.Tokens); !slices.Equal(got, says[streams[len(streams)-1].Weights()][:len(got)]) {
					t.Errorf("%+v: a text of %s begins with %v", l, streams[len(streams)-1].Weights(), got)
				}
			}
			for i, s := range streams {
				got, want := idsOf(gather(t, s).Tokens), says[s.Weights()]
				if i%2 == 1 { // its first result was read above
					want = want[len(want)-len(got):]
				}
				if s.Weights() != []string{"iter-1", "iter-2", "iter-3", "iter-2"}[i/2] || !slices.Equal(got, want) {
					t.Errorf("%+v: text %d of %s: %v, want %v", l, i, s.Weights(), got, want)
				}
			}
		})
	}
}

// Claim: an iteration that cannot be loaded is refused with the reason, on all ranks, and
// serving continues.
func TestPassesOverWhatCannotBeHad(t *testing.T) {
	dir := t.TempDir()
	says, model := iterations(t, dir, 1, 2, 3, 4)
	file := filepath.Join(dir, checkpoint.IterName(2), "rank_00000.safetensors")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for at := len(raw) / 3; at < len(raw); at += 1000 {
		raw[at] ^= 1
	}
	for name, content := range map[string][]byte{file: raw, filepath.Join(dir, checkpoint.IterName(4), "rank_00000.safetensors"): raw[:len(raw)/2]} {
		if err := os.WriteFile(name, content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	other := tiny(t, func(m *spec.Model) { m.NumLayers = 3 })
	save(t, dir, other, 5, stored{Model: other.Model, Precision: "f32", SeqLength: 96})
	wide := model.Model
	wide.FFNHiddenSize *= 2
	wider := &Loaded{Model: wide}
	if err := wider.build(model.Device, LoadOptions{Precision: "f32"}, 96); err != nil {
		t.Fatal(err)
	}
	save(t, dir, wider, 6, stored{Model: wide, Precision: "f32", SeqLength: 96})
	for _, l := range []Layout{{}, {TP: 2}, {PP: 2}} {
		served(t, l, dir, LoadOptions{Step: 1}, func(b *Batcher) {
			for step, why := range map[int64]string{2: "checksum", 4: "were written", 5: "the checkpoint contains a different model: --num-layers 2 -> 3", 6: "has the shape", 9: "no iteration 9"} {
				if err := b.Reload(context.Background(), step); err == nil || !strings.Contains(err.Error(), why) {
					t.Errorf("%+v: iteration %d: %v, want %q", l, step, err, why)
				}
				s := submit(t, b, &Request{Prompt: prompt, MaxNew: 20})[0]
				if got := idsOf(gather(t, s).Tokens); s.Weights() != "iter-1" || !slices.Equal(got, says["iter-1"][:20]) {
					t.Errorf("%+v: after iteration %d %s says %v", l, step, s.Weights(), got)
				}
			}
			if err := b.Reload(context.Background(), 3); err != nil {
				t.Error(err)
			}
			s := submit(t, b, &Request{Prompt: prompt, MaxNew: 20})[0]
			if got := idsOf(gather(t, s).Tokens); s.Weights() != "iter-3" || !slices.Equal(got, says["iter-3"][:20]) {
				t.Errorf("%+v: %s says %v", l, s.Weights(), got)
			}
		})
	}
}

// Claim: ranks that share experts serve the ids of one rank, and log-probabilities of its
// training forward within 1e-5.
func TestExpertsServed(t *testing.T) {
	l, dir := batchModel(t, ref.Open(), "f32", func(m *spec.Model) {
		m.Position, m.MaxPositions, m.Context, m.Tied = spec.PositionRope, 0, 96, false
		m.NumAttentionHeads, m.NumQueryGroups, m.KVChannels, m.LinearBias = 4, 4, 4, false
		m.Experts = &spec.Experts{Num: 4, FFNHiddenSize: 8, TopK: 2, ScoreFunction: spec.ScoreSoftmax, Layers: slices.Repeat([]bool{true}, m.NumLayers),
			Balancing: []string{spec.NoBalancing}, AuxLossCoeff: []float64{0}, DropPolicy: spec.DropByWeight, Dispatcher: spec.AllToAllDispatcher}
	}), t.TempDir()
	save(t, dir, l, 1, stored{Model: l.Model, Precision: "f32", SeqLength: 96})
	want := sample(t, l, SampleOptions{MaxNew: 40})
	full := logProbs(t, l, slices.Concat(prompt, want))
	for _, layout := range []Layout{{}, {EP: 2}, {EP: 4}, {TP: 2, EP: 2}, {TP: 2, EP: 4}, {EP: 2, PP: 2}} {
		served(t, layout, dir, LoadOptions{Step: -1}, func(b *Batcher) {
			q := &Request{Prompt: prompt, MaxNew: 40, PromptLogProbs: true}
			for _, s := range submit(t, b, q, q, q) {
				got := gather(t, s)
				if !slices.Equal(idsOf(got.Tokens), want) {
					t.Errorf("%+v: %v, one rank %v", layout, idsOf(got.Tokens), want)
					return
				}
				for i, x := range append(got.Prompt, got.Tokens...) {
					if p := full[max(0, i-1)][x.ID]; i > 0 && !(math.Abs(x.LogProb-p) < 1e-5) {
						t.Errorf("%+v: token %d has log-probability %g, in a pass over all %g", layout, i, x.LogProb, p)
					}
				}
			}
		})
	}
}

// served runs a server's ranks while work lasts, and checks that no block is left in use.
func served(t *testing.T, l Layout, dir string, o LoadOptions, work func(b *Batcher)) {
	t.Helper()
	size := func(*Loaded, int64) (BatcherConfig, error) {
		return BatcherConfig{Blocks: 60, Sequences: 8, Tokens: 32, Queue: 100}, nil
	}
	err := Serve(context.Background(), l, ranks.Config{Open: openRef}, dir, o, size, func(_ *Loaded, b *Batcher) error {
		go func() {
			defer b.Drain()
			work(b)
			if s := b.Stats(); s.FreeBlocks != s.Blocks {
				t.Errorf("%+v: %d of %d blocks are free when all is over", l, s.FreeBlocks, s.Blocks)
			}
		}()
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func idsOf(tokens []Token) (ids []int32) {
	for _, x := range tokens {
		ids = append(ids, x.ID)
	}
	return ids
}

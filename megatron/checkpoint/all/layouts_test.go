package all

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
)

// layouts that the golden families divide by.
var layouts = map[string]checkpoint.Layout{
	"tp1":             {},
	"tp2":             {TP: 2},
	"tp4":             {TP: 4},
	"pp2":             {PP: 2},
	"tp2pp2":          {TP: 2, PP: 2},
	"tp2pp2-zero":     {TP: 2, PP: 2, DP: 2, DistributedOptimizer: true},
	"zero":            {DP: 2, DistributedOptimizer: true},
	"pp2-first0":      {PP: 2, StageLayers: []int{0, 2}},
	"tp2ep2":          {TP: 2, EP: 2},
	"ep2":             {EP: 2},
	"tp2ep2etp1":      {TP: 2, EP: 2, ETP: 1},
	"tp2pp2ep4-zero":  {TP: 2, PP: 2, EP: 4, DistributedOptimizer: true},
	"pp2vp2":          {PP: 2, VP: 2},
	"pp2vp2-tp2-zero": {PP: 2, VP: 2, TP: 2, DistributedOptimizer: true},
}

// fits reports whether a family of the corpus can have a layout.
func fits(family string, l checkpoint.Layout) bool {
	l = l.Complete()
	switch {
	case l.EP > 1 && family != "mixtral" && family != "qwen2-moe":
		return false
	case l.VP > 1 && family != "gpt2-l4":
		return false
	case len(l.StageLayers) > 0 && family == "gpt2-l4":
		return false
	}
	return true
}

// written saves src in a format and layout and opens the result.
func written(t *testing.T, f checkpoint.Format, src checkpoint.Source, o checkpoint.WriteOptions) checkpoint.Source {
	t.Helper()
	path := filepath.Join(fastDir(t), "out")
	done, err := Write(context.Background(), f, path, src, o)
	if err != nil {
		t.Fatal(err)
	}
	if done.Files == 0 || done.Bytes == 0 || !strings.HasPrefix(done.Path, path) {
		t.Errorf("wrote %+v", done)
	}
	if got, err := checkpoint.Detect(path); got != f || err != nil {
		t.Errorf("detected as %s, %v", got, err)
	}
	return open(t, path)
}

// Each family with an optimizer's state, in every layout that Megatron could
// have, comes back number by number, and so does its state.
func TestMegatronLayouts(t *testing.T) {
	for _, c := range cases(t, func(c goldenCase) bool {
		return strings.HasPrefix(c.Format, "megatron") && !strings.Contains(c.Case, "-te") && table[checkpoint.FormatOf(c.Format)].open != nil
	}) {
		src := open(t, c.dir)
		want := weights(t, c.Family)
		_, adam := c.Optimizer.(map[string]any)
		for name, l := range layouts {
			if !fits(c.Family, l) {
				continue
			}
			options := []checkpoint.WriteOptions{{Layout: l}}
			if slices.Contains([]string{"tp1", "tp2pp2-zero", "tp2pp2ep4-zero"}, name) {
				options = append(options, checkpoint.WriteOptions{Layout: l, TransformerImpl: engine, GroupedExperts: c.Family == "mixtral"})
			}
			for _, o := range options {
				for _, f := range []checkpoint.Format{checkpoint.MegatronTorch, checkpoint.MegatronTorchDist, checkpoint.Native} {
					if table[f].write == nil || o.TransformerImpl != "" && f != checkpoint.MegatronTorch {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s/%s/%s", c.Case, f, name, o.TransformerImpl), func(t *testing.T) {
						again := written(t, f, src, o)
						expect(t, again, want, adam)
						sameState(t, src.State(), again.State(), adam)
					})
				}
			}
		}
	}
}

const engine = "transformer_engine"

// What a run with Transformer Engine has saved has its names, in their order, when it is written
// again; core_attention's state, which only some versions have, is not.
func TestTransformerEngineNames(t *testing.T) {
	keys := func(dir string) (list []string) {
		paths, err := filepath.Glob(filepath.Join(dir, "mp_rank_*", "model_optim_rng.pt"))
		if err != nil || len(paths) != 1 {
			t.Fatalf("%s: %v, %v", dir, paths, err)
		}
		f, err := pickle.Open(paths[0])
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		model, _ := f.Root.(*pickle.Dict).Get("model")
		for _, p := range model.(*pickle.Dict).Pairs {
			if key := p.Key.(string); !strings.Contains(key, "core_attention.") {
				list = append(list, key)
			}
		}
		return list
	}
	seen := 0
	for _, c := range cases(t, func(c goldenCase) bool { return strings.HasSuffix(c.Case, "-mcore-torch-te") }) {
		seen++
		src := open(t, c.dir)
		again := written(t, checkpoint.MegatronTorch, src, checkpoint.WriteOptions{})
		if got, want := keys(again.Info().Path), keys(src.Info().Path); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", c.Case, got, want)
		}
	}
	if seen < 3 {
		t.Errorf("%d cases", seen)
	}
}

// sameState compares what a run continues from.
func sameState(t *testing.T, a, b checkpoint.State, optimizer bool) {
	t.Helper()
	if a.Iteration != b.Iteration || a.ConsumedTrain != b.ConsumedTrain || a.ConsumedValid != b.ConsumedValid || a.Seed != b.Seed {
		t.Errorf("iteration %d, samples %d, %d, seed %d; want %d, %d, %d, %d", b.Iteration, b.ConsumedTrain, b.ConsumedValid, b.Seed, a.Iteration, a.ConsumedTrain, a.ConsumedValid, a.Seed)
	}
	if !optimizer {
		return
	}
	for what, pair := range map[string][2][]byte{"scheduler": {a.Scheduler, b.Scheduler}, "scaler": {a.Scaler, b.Scaler},
		"steps": {a.Extra[checkpoint.ExtraAdamSteps], b.Extra[checkpoint.ExtraAdamSteps]}} {
		if !reflect.DeepEqual(string(pair[0]), string(pair[1])) {
			t.Errorf("%s %s, want %s", what, pair[1], pair[0])
		}
	}
}

// fastDir is a temporary folder in memory where the system has one: syncing it
// is free.
func fastDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "formats-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

package all

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"monotron/megatron/formats"
)

// layouts that the golden families divide by.
var layouts = map[string]formats.Layout{
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

// fits tells which layouts a family of the corpus can have.
func fits(family string, l formats.Layout) bool {
	l = l.Whole()
	switch {
	case l.EP > 1 && family != "mixtral":
		return false
	case l.VP > 1 && family != "gpt2-l4":
		return false
	case len(l.StageLayers) > 0 && family == "gpt2-l4":
		return false
	}
	return true
}

// written saves src in a format and layout and opens the result.
func written(t *testing.T, f formats.Format, src formats.Source, l formats.Layout) formats.Source {
	t.Helper()
	path := filepath.Join(fastDir(t), "out")
	done, err := Write(context.Background(), f, path, src, formats.WriteOptions{Layout: l})
	if err != nil {
		t.Fatal(err)
	}
	if done.Files == 0 || done.Bytes == 0 || !strings.HasPrefix(done.Path, path) {
		t.Errorf("wrote %+v", done)
	}
	if got, err := formats.Detect(path); got != f || err != nil {
		t.Errorf("detected as %s, %v", got, err)
	}
	return open(t, path)
}

// Each family with an optimizer's state, in every layout that Megatron could
// have, comes back number by number, and so does its state.
func TestMegatronLayouts(t *testing.T) {
	for _, c := range cases(t, func(c golden) bool {
		return strings.HasPrefix(c.Format, "megatron") && !strings.Contains(c.Case, "-te") && table[formats.Format(c.Format)].open != nil
	}) {
		src := open(t, c.dir)
		want := weights(t, c.Family)
		_, adam := c.Optimizer.(map[string]any)
		for name, l := range layouts {
			if !fits(c.Family, l) {
				continue
			}
			for _, f := range []formats.Format{formats.MegatronTorch, formats.MegatronTorchDist, formats.Native} {
				if table[f].write == nil {
					continue
				}
				t.Run(c.Case+"/"+string(f)+"/"+name, func(t *testing.T) {
					again := written(t, f, src, l)
					expect(t, again, want, adam)
					sameState(t, src.State(), again.State(), adam)
				})
			}
		}
	}
}

// sameState compares what a run continues from.
func sameState(t *testing.T, a, b formats.State, optimizer bool) {
	t.Helper()
	if a.Iteration != b.Iteration || a.ConsumedTrain != b.ConsumedTrain || a.ConsumedValid != b.ConsumedValid || a.Seed != b.Seed {
		t.Errorf("iteration %d, samples %d, %d, seed %d; want %d, %d, %d, %d", b.Iteration, b.ConsumedTrain, b.ConsumedValid, b.Seed, a.Iteration, a.ConsumedTrain, a.ConsumedValid, a.Seed)
	}
	if !optimizer {
		return
	}
	for what, pair := range map[string][2][]byte{"scheduler": {a.Scheduler, b.Scheduler}, "scaler": {a.Scaler, b.Scaler},
		"steps": {a.Extra[formats.ExtraAdamSteps], b.Extra[formats.ExtraAdamSteps]}} {
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

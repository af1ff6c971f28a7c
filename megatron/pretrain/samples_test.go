package pretrain

import (
	"strings"
	"testing"
)

// Claim: a model cut by tensors, by stages, by interleaved stages and with a
// sharded optimizer continues --sample-prompt as one rank does, told once.
func TestSamplesOfCutModels(t *testing.T) {
	said := func(layout string) (samples []string) {
		args := strings.Replace(tiny, "--num-layers 2", "--num-layers 4", 1)
		r := must(t, t.TempDir(), args+someData+"--train-iters 2 --eval-interval 2 --eval-iters 1 --sample-prompt 1~2~3 --sample-tokens 6 "+layout)
		for _, line := range strings.Split(r.notes, "\n") {
			if _, text, ok := strings.Cut(line, "sample at iteration 2: "); ok {
				samples = append(samples, text)
			}
		}
		return samples
	}
	want := said("")
	if len(want) != 1 {
		t.Fatalf("one rank told %q", want)
	}
	for _, layout := range []string{"--world-size 2 --tensor-model-parallel-size 2", "--world-size 4 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2",
		"--world-size 2 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2", "--world-size 2 --use-distributed-optimizer"} {
		if got := said(layout); len(got) != 1 || got[0] != want[0] {
			t.Errorf("%s: %q, one rank %q", layout, got, want)
		}
	}
}

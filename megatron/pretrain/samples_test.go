package pretrain

import (
	"strings"
	"testing"
)

// Claim: a continuation that the positions cut short is announced, and no other.
func TestSamplesThatDoNotFit(t *testing.T) {
	for _, c := range []struct {
		tokens, say string
	}{
		{"6", ""},
		{"4000", `--sample-prompt "1 2 3" has 3 tokens, so only 13 of --sample-tokens 4000 fit into --seq-length 16`},
	} {
		r := must(t, t.TempDir(), tiny+someData+"--train-iters 1 --eval-interval 1 --eval-iters 1 --sample-prompt 1~2~3 --sample-tokens "+c.tokens)
		if c.say == "" && strings.Contains(r.notes, "--sample-tokens") || !strings.Contains(r.notes, c.say) {
			t.Errorf("--sample-tokens %s: want %q in %s", c.tokens, c.say, r.notes)
		}
	}
}

// Claim: a model cut by tensors, by stages, by interleaved stages, by positions under each
// exchange and with a sharded optimizer continues --sample-prompt as one rank does, printed once.
func TestSamplesOfCutModels(t *testing.T) {
	said := func(layout string) (samples []string) {
		args := strings.Replace(tiny, "--num-layers 2", "--num-layers 4", 1)
		r := must(t, t.TempDir(), args+someData+"--train-iters 2 --eval-interval 2 --eval-iters 1 --sample-prompt 1~2~3~4~5~6 --sample-tokens 6 "+layout)
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
		"--world-size 2 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2", "--world-size 2 --use-distributed-optimizer",
		"--world-size 2 --context-parallel-size 2", "--world-size 2 --context-parallel-size 2 --cp-comm-type a2a", "--world-size 4 --context-parallel-size 2 --tensor-model-parallel-size 2 --cp-comm-type all_gather"} {
		if got := said(layout); len(got) != 1 || got[0] != want[0] {
			t.Errorf("%s: %q, one rank %q", layout, got, want)
		}
	}
}

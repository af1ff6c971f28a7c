package pretrain

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// Claim: where upcycling's definition gives back the dense model, the loss is the dense
// model's, in every layout: copies of uncut MLPs with a softmax over the chosen, and, as a
// squared ReLU takes the factors out exactly, shards of it if a choice takes all of an MLP.
// The run's checkpoint continues without the flag.
func TestUpcyclingKeepsTheModel(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, tiny+someData+"--save DIR/swiglu --swiglu --ffn-hidden-size 24")
	must(t, dir, tiny+someData+"--save DIR/relu --squared-relu --disable-bias-linear --ffn-hidden-size 24")
	must(t, dir, tiny+someData+"--save DIR/biased --squared-relu --ffn-hidden-size 24")
	must(t, dir, tiny+someData+"--save DIR/narrow --squared-relu --ffn-hidden-size 24 --bf16")
	line := tiny + someData + "--use-checkpoint-args --skip-train "
	loss := func(more string) float64 {
		t.Helper()
		v, err := strconv.ParseFloat(finalLoss(must(t, dir, line+more).out), 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	const up = "--moe-use-upcycling --num-experts 4 --moe-router-topk 2 "
	const granular = "--moe-upcycling-granularity 2 --moe-ffn-hidden-size 12 "
	for _, c := range []struct {
		dense, flags string
		limit        float64
	}{
		{"swiglu", "", 1e-6},
		{"swiglu", "--world-size 2 --expert-model-parallel-size 2", 1e-6},
		{"swiglu", "--moe-layer-freq [0,1] --world-size 2 --pipeline-model-parallel-size 2", 1e-6},
		{"swiglu", "--moe-router-score-function sigmoid --moe-router-enable-expert-bias", 1e-6},
		{"relu", granular, 1e-6},
		{"relu", granular + "--moe-token-dispatcher-type alltoall --world-size 2 --tensor-model-parallel-size 2 --sequence-parallel", 1e-6},
		{"biased", granular, 1e-6},
		{"narrow", granular, 1e-3}, // weights times 2^(1/3) are rounded to bf16
	} {
		want := loss("--finetune --load DIR/" + c.dense)
		if got := loss(up + c.flags + " --load DIR/" + c.dense); math.Abs(got-want) > c.limit*want {
			t.Errorf("%s %s: loss %v, the dense model's is %v", c.dense, c.flags, got, want)
		}
	}
	must(t, dir, tiny+someData+"--use-checkpoint-args "+up+"--load DIR/swiglu --save DIR/mixture")
	must(t, dir, tiny+someData+"--use-checkpoint-args --load DIR/mixture --save DIR/mixture --train-iters 8 --override-opt-param-scheduler")
	for flags, says := range map[string]string{
		up + "--load DIR/swiglu --save DIR/mixture":                                      "already has a checkpoint",
		up + "--load DIR/mixture":                                                        "already has experts",
		up + "--load DIR/swiglu --moe-ffn-hidden-size 12":                                "; use granularity 2",
		"--moe-use-upcycling --num-experts 3 --load DIR/swiglu --moe-ffn-hidden-size 12": "not a multiple of the",
		"--moe-use-upcycling --num-experts 4 --load DIR/swiglu --moe-ffn-hidden-size 9":  "not a multiple of the expert width",
		"--moe-use-upcycling --load DIR/swiglu":                                          "needs --num-experts",
		up:                                                                               "--use-checkpoint-args needs --load",
		up + "--load DIR/swiglu --moe-shared-expert-intermediate-size 8 --disable-bias-linear": "a dense model cannot initialize a shared expert",
	} {
		r := call(t, dir, tiny+someData+"--use-checkpoint-args "+flags)
		if r.code() != exitcode.Usage || !strings.Contains(r.err.Error(), says) {
			t.Errorf("%s: exit %d, %v", flags, r.code(), r.err)
		}
	}
	if r := call(t, dir, tiny+someData+up); r.code() != exitcode.Usage || !strings.Contains(r.err.Error(), "needs a dense checkpoint") {
		t.Errorf("no checkpoint: exit %d, %v", r.code(), r.err)
	}
	if r := call(t, dir, tiny+someData+up+"--load DIR/nothing"); r.code() != exitcode.NoInput || !strings.Contains(r.err.Error(), "needs a dense checkpoint, but the folder has none") {
		t.Errorf("a folder without a checkpoint: exit %d, %v", r.code(), r.err)
	}
}

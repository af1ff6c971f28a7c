package estimate

import (
	"errors"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/arguments"
	"monotron/megatron/training"
)

// parsed is a run's settings by its flags.
func parsed(t *testing.T, flags string) training.Config {
	t.Helper()
	c, _, err := arguments.ParseWith(arguments.Options{Layouts: true, Experts: true}, strings.Fields(flags))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetVocab(c.Tokenizer.VocabSize); err != nil {
		t.Fatal(err)
	}
	return c
}

const small = "--num-layers 8 --hidden-size 256 --num-attention-heads 8 --seq-length 256 --max-position-embeddings 256 --micro-batch-size 4 --global-batch-size 64 " +
	"--train-iters 10 --lr 1e-3 --tokenizer-type NullTokenizer --vocab-size 1000 --mock-data "

// Claim: a run that cannot fit is refused with its numbers and with flags that fit, which the
// count itself says; one that fits with no flags at all is told so.
func TestCheck(t *testing.T) {
	c := parsed(t, small+"--world-size 4")
	o, all := Options{Device: "cpu"}, []int{0, 1, 2, 3}
	plan, err := o.Check(c, all, Unlimited)
	if err != nil || len(plan) != 4 {
		t.Fatalf("%d ranks, %v", len(plan), err)
	}
	if at := plan[0].At; at.Micro < 1 || at.Unit == "" {
		t.Errorf("the peak is in the %v: of no layer", at)
	}
	held := total(plan)
	if _, err := o.Check(c, all, Room{held, "here"}); err != nil {
		t.Errorf("as much as it takes: %v", err)
	}
	_, err = o.Check(c, all, Room{held / 3, "here"})
	var u *Unfit
	if !errors.As(err, &u) || fault.CodeOf(err) != fault.Internal || u.Total() != held || len(u.Nearest) == 0 {
		t.Fatalf("a third of it: %v", err)
	}
	for _, flags := range u.Nearest {
		smaller := parsed(t, small+"--world-size 4 "+flags)
		if plan, err := o.Ranks(smaller, all); err != nil || total(plan) > held/3 {
			t.Errorf("%q is said to fit: %d of %d bytes, %v", flags, total(plan), held/3, err)
		}
	}
	for _, want := range []string{"the 4 ranks here take", "(here)", "The largest is rank", "activations", "What would fit: --", "--no-plan"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	if _, err = o.Check(c, all, Room{1000, "here"}); !errors.As(err, &u) || !u.Every || !strings.Contains(err.Error(), "does not fit either") {
		t.Errorf("1000 bytes: %v", err)
	}
}

// Claim: what flags are said to save is the difference of two counts, and the error of a rank
// that ran out of memory has the best of them.
func TestExhausted(t *testing.T) {
	c := parsed(t, small+"--world-size 4")
	o := Options{Device: "cpu"}
	before, err := o.Of(c, 0)
	if err != nil {
		t.Fatal(err)
	}
	savings := o.Savings(c, 0, before.Peak)
	if len(savings) < 5 {
		t.Errorf("%d flags save something", len(savings))
	}
	for _, s := range savings {
		if s.more {
			continue
		}
		if after, err := o.Of(parsed(t, small+"--world-size 4 "+s.Flags), 0); err != nil || after.Peak != before.Peak-s.Bytes {
			t.Errorf("%v: %d bytes before, %d after, %v", s, before.Peak, after.Peak, err)
		}
	}
	e := &device.OutOfMemory{Purpose: device.Activations, Bytes: 100, For: device.View(nil, device.BF16, 50), Cause: errors.New("no more"), Fused: 500 << 20}
	err = o.Exhausted(c, 0, e)
	if fault.CodeOf(err) != fault.Internal || !errors.Is(err, e.Cause) {
		t.Errorf("%v", err)
	}
	for _, want := range []string{savings[0].String(), "--attention-backend flash saves 500.0 MiB", "The rank was planned to hold " + device.Size(before.Peak)} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
}

// Claim: micro-batches beyond those that are counted add nothing.
func TestEnoughMicroBatches(t *testing.T) {
	for _, layout := range []string{"", "--world-size 2 --use-distributed-optimizer --data-parallel-sharding-strategy optim_grads --overlap-grad-reduce",
		"--world-size 4 --pipeline-model-parallel-size 4", "--world-size 4 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 1",
		"--world-size 2 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2 --microbatch-group-size-per-virtual-pipeline-stage 3",
		"--world-size 4 --pipeline-model-parallel-size 2 --pipeline-schedule gpipe",
		"--world-size 4 --pipeline-model-parallel-size 4 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"} {
		c := parsed(t, small+"--global-batch-size 96 --micro-batch-size 1 --eval-interval 5 --eval-iters 2 "+layout)
		some, err := Memory(c, Options{Device: "cpu"})
		if err != nil {
			t.Fatal(err)
		}
		all, err := Memory(c, Options{Device: "cpu", Whole: true})
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			if some[i] != all[i] {
				t.Errorf("%s: rank %d holds %+v by %d micro-batches, %+v by all", layout, i, some[i], enough(&c), all[i])
			}
		}
	}
}

package plan

import (
	"errors"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/arguments"
	"monotron/megatron/config"
	"monotron/mpu/health"
)

// parsed is a run's settings by its flags.
func parsed(t *testing.T, flags string) config.Run {
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

// Claim: a run that cannot fit is refused with its numbers and with flags that fit by the same
// count; if no flags make it fit, the error says so.
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
	memory := total(plan)
	if _, err := o.Check(c, all, Capacity{memory, "here"}); err != nil {
		t.Errorf("as much as it takes: %v", err)
	}
	_, err = o.Check(c, all, Capacity{memory / 3, "here"})
	var u *Unfit
	if !errors.As(err, &u) || exitcode.CodeOf(err) != exitcode.Internal || u.Total() != memory || len(u.Nearest) == 0 {
		t.Fatalf("a third of it: %v", err)
	}
	for _, flags := range u.Nearest {
		smaller := parsed(t, small+"--world-size 4 "+flags)
		if plan, err := o.Ranks(smaller, all); err != nil || total(plan) > memory/3 {
			t.Errorf("%q is said to fit: %d of %d bytes, %v", flags, total(plan), memory/3, err)
		}
	}
	for _, want := range []string{"the 4 ranks on this host need", "(here)", "The largest rank is rank", "activations", "The following would fit: --", "--no-plan"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	if _, err = o.Check(c, all, Capacity{1000, "here"}); !errors.As(err, &u) || !u.Every || !strings.Contains(err.Error(), "does not fit even with all flags that save memory") {
		t.Errorf("1000 bytes: %v", err)
	}
}

// Claim: a width that no machine holds is refused as any other, also where files could hold it,
// whose pieces are all alike.
func TestCheckOfHugeExperts(t *testing.T) {
	c := parsed(t, strings.Replace(small, "--mock-data", "--mock-data --num-experts 4 --disable-bias-linear --swiglu --moe-ffn-hidden-size 2147483647", 1))
	_, err := Options{Device: "cpu"}.Check(c, []int{0}, Capacity{20 << 30, "here"})
	if !IsUnfit(err) || !strings.Contains(err.Error(), "does not fit") {
		t.Error(err)
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
	if exitcode.CodeOf(err) != exitcode.Internal || !errors.Is(err, e.Cause) {
		t.Errorf("%v", err)
	}
	for _, want := range []string{savings[0].String(), "--attention-backend flash saves 500.0 MiB", "According to the plan, the rank needs " + device.Size(before.Peak)} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
}

// Claim: the refusal of a run that does not fit on a GPU says that the host could keep the optimizer's state, and by
// how much that helps; on a CPU, where that is the same memory, it does not.
func TestHostIsAdvisedOnGPUs(t *testing.T) {
	const few = "--num-layers 8 --hidden-size 256 --num-attention-heads 8 --seq-length 16 --max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 1 " +
		"--train-iters 10 --lr 1e-3 --tokenizer-type NullTokenizer --vocab-size 1000 --mock-data "
	c := parsed(t, few)
	for kind, want := range map[string]bool{"cuda": true, "cpu": false} {
		o := Options{Device: kind}
		before, err := o.Of(c, 0)
		if err != nil {
			t.Fatal(err)
		}
		e := &device.OutOfMemory{Purpose: device.Optimizer, Bytes: 100, For: device.View(nil, device.F32, 25), Cause: errors.New("no more")}
		reported := o.Exhausted(c, 0, e).Error()
		if strings.Contains(reported, "--optimizer-cpu-offload") != want {
			t.Errorf("%s: %s", kind, reported)
		}
		if !want {
			continue
		}
		after, err := o.Of(parsed(t, few+"--optimizer-cpu-offload"), 0)
		if saves := "--optimizer-cpu-offload saves " + device.Size(before.Peak-after.Peak); err != nil || !strings.Contains(reported, saves) {
			t.Errorf("no %q in: %s; %v", saves, reported, err)
		}
	}
}

// Claim: a run with --layout-invariant is advised nothing that the flag refuses: offload, tiles, more
// tensor-parallel ranks than leaves.
func TestAdviceUnderOneOrder(t *testing.T) {
	const flags = "--num-layers 4 --hidden-size 64 --num-attention-heads 8 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 8 " +
		"--train-iters 10 --lr 1e-3 --tokenizer-type NullTokenizer --vocab-size 1000 --mock-data --layout-invariant --reduction-leaves 1"
	c, o := parsed(t, flags), Options{Device: "cpu"}
	now, err := o.Of(c, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := o.Savings(c, 0, now.Peak)
	if len(all) == 0 {
		t.Error("nothing is advised")
	}
	for _, s := range all {
		for _, refused := range []string{"offload", "tiling", "tensor-model-parallel-size"} {
			if strings.Contains(s.Flags, refused) {
				t.Errorf("advised: %s", s)
			}
		}
	}
}

// Claim: with operands of 8 bits, whose scales are of complete tensors, advice has no tiles, which are refused.
func TestAdviceWithFP8(t *testing.T) {
	for _, recipe := range []string{"blockwise", "mxfp8", "tensorwise"} {
		c, o := parsed(t, small+"--bf16 --fp8-format hybrid --fp8-recipe "+recipe), Options{Device: "cpu"}
		now, err := o.Of(c, 0)
		if err != nil {
			t.Fatal(err)
		}
		all := o.Savings(c, 0, now.Peak)
		if len(all) == 0 {
			t.Errorf("%s: nothing is advised", recipe)
		}
		for _, s := range all {
			if strings.Contains(s.Flags, "tiling") {
				t.Errorf("%s: advised: %s", recipe, s)
			}
		}
	}
}

// Claim: of two ways to share the optimizer's state, and of two locations of it, a set of flags has
// one; other changes can be combined.
func TestChangesOfOneSubject(t *testing.T) {
	c := parsed(t, small+"--world-size 4")
	list := Options{Device: "cuda"}.changes(&c)
	subject := func(flags string) string {
		for _, word := range []string{"--use-distributed-optimizer", "--optimizer-cpu-offload", "--offload-folder"} {
			if strings.HasPrefix(flags, word) {
				return strings.Replace(word, "--offload-folder", "--optimizer-cpu-offload", 1)
			}
		}
		return flags
	}
	same := 0
	for i, a := range list {
		for j, b := range list[:i] {
			want := subject(a.Flags) == subject(b.Flags)
			if got := doubled(list, 1<<i|1<<j); got != want {
				t.Errorf("%s with %s: %v", a.Flags, b.Flags, got)
			}
			if want {
				same++
			}
		}
	}
	if same != 1+6 {
		t.Errorf("%d pairs of one subject among %d changes", same, len(list))
	}
}

// Claim: a point counts micro-batches from 0, as errors and layers do.
func TestCoordinatesCountFromZero(t *testing.T) {
	for want, p := range map[string]Point{
		"backward of micro-batch 0, layer 3": {Phase: health.Backward, Micro: 1, Unit: "decoder.layers.3"},
		"evaluation, micro-batch 1, head":    {Phase: health.Eval, Micro: 2, Unit: "head"},
		"update":                             {Phase: health.Optimizer},
	} {
		if got := p.String(); got != want {
			t.Errorf("%q, want %q", got, want)
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
		all, err := Memory(c, Options{Device: "cpu", Full: true})
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

// Claim: a run whose optimizer's state does not fit in the host's memory is refused with the numbers and with
// changes that fit by the count; where the rest does not fit on the GPU, none is named.
func TestCheckHost(t *testing.T) {
	const flags = small + "--device cuda --bf16 --optimizer-cpu-offload --world-size 2 "
	c, o, all := parsed(t, flags), Options{Device: "cuda"}, []int{0, 1}
	plan, err := o.Ranks(c, all)
	if err != nil {
		t.Fatal(err)
	}
	memory := plan[0].Stored + plan[1].Stored
	for _, enough := range []Capacity{Unlimited, {memory, "here"}} {
		if err := o.CheckHost(c, all, enough, OnGPU(false, Unlimited)); err != nil {
			t.Errorf("%v of %d: %v", enough, memory, err)
		}
	}
	var u *Overfull
	err = o.CheckHost(c, all, Capacity{memory / 2, "here"}, OnGPU(false, Unlimited))
	if !errors.As(err, &u) || !IsUnfit(err) || exitcode.CodeOf(err) != exitcode.Internal || u.Bytes != memory || len(u.Nearest) != 3 {
		t.Fatalf("a half of it: %v", err)
	}
	for _, change := range u.Nearest[:2] {
		smaller, err := o.Ranks(parsed(t, flags+change), all)
		if err != nil || smaller[0].Stored+smaller[1].Stored > memory/2 {
			t.Errorf("%q is said to fit: %v", change, err)
		}
	}
	for _, want := range []string{"the 2 ranks on this host need " + device.Size(memory), "(here)", "--optimizer-offload-fraction 0.", "--use-distributed-optimizer", "--offload-folder DIR", "--no-plan"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	err = o.CheckHost(c, all, Capacity{memory / 2, "here"}, OnGPU(false, Capacity{1000, "there"}))
	if !errors.As(err, &u) || len(u.Nearest) > 0 || !strings.Contains(err.Error(), "Smaller parts do not fit either") {
		t.Errorf("no room on the GPU: %v", err)
	}
	for perNode, has := range map[int]bool{1: true, 2: false} {
		if m := (&Machine{PerNode: perNode, Host: Bytes(plan[0].Stored)}); m.HostHas(&c, plan) != has {
			t.Errorf("a node of %d with room for one rank has it: %t", perNode, !has)
		}
	}
	o.Device = "cpu"
	if c = parsed(t, small+"--optimizer-cpu-offload"); o.CheckHost(c, []int{0}, Capacity{}, OnGPU(true, Unlimited)) != nil {
		t.Error("a device whose memory is the host's keeps nothing beside it")
	}
}

// Claim (docs/plan.md): ranks whose tensors fit, and not with what their processes take, start with a warning.
func TestTight(t *testing.T) {
	ranks := []Rank{{Peak: 100 << 20}, {Peak: 60 << 20}}
	for _, c := range []struct {
		processes int
		capacity  int64
		says      bool
	}{{1, 159 << 20, false}, {1, 160 << 20, true}, {1, 223 << 20, true}, {1, 224 << 20, false}, {2, 224 << 20, true}, {2, 288 << 20, false}, {2, Unlimited.Bytes, false}} {
		capacity := Capacity{c.capacity, "left of the control group's limit"}
		if c.capacity == Unlimited.Bytes {
			capacity = Unlimited
		}
		text := Tight(ranks, c.processes, capacity)
		if (text != "") != c.says || c.says && !strings.Contains(text, "need 160.0 MiB") {
			t.Errorf("%+v: %q", c, text)
		}
	}
}

package pretrain

import (
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// experts is a model with a dense layer, a mixture whose experts have biases that are
// balanced, and a shared expert.
const experts = "--num-experts 4 --moe-layer-freq [0,1] --moe-router-topk 2 --moe-ffn-hidden-size 12 --moe-router-score-function sigmoid " +
	"--moe-router-enable-expert-bias --moe-router-bias-update-rate 1e-2 --moe-router-num-groups 2 --moe-router-group-topk 1 --moe-router-topk-scaling-factor 2.5 " +
	"--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-2 --moe-shared-expert-intermediate-size 16 " +
	"--swiglu --ffn-hidden-size 32 --disable-bias-linear --normalization RMSNorm --untie-embeddings-and-output-weights --global-batch-size 8 "

// Claim (design.md section 7): a run with experts that stopped continues bit for bit in its
// layout, and in every other, also out of Megatron's formats, with the same losses and
// gradient norms but for the order of sums.
func TestExpertsResumeInAnyLayout(t *testing.T) {
	const ep2 = "--world-size 2 --expert-model-parallel-size 2 "
	dir := t.TempDir()
	base := tiny + someData + experts + "--save-interval 3 "
	full := numbers(must(t, dir, base+ep2+"--save DIR/whole").out)
	for _, format := range []string{"native", "torch", "torch_dist"} {
		from := "--load DIR/" + format + " "
		must(t, dir, base+ep2+"--exit-interval 3 --save DIR/"+format+" --ckpt-format "+format)
		for name, layout := range map[string]string{
			"same": ep2, "one rank": "", "ep4": "--world-size 4 --expert-model-parallel-size 4", "zero3": ep2 + "--use-megatron-fsdp",
			"tp": "--world-size 2 --tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 --expert-tensor-parallel-size 1",
			"pp": "--world-size 4 --pipeline-model-parallel-size 2 --expert-model-parallel-size 2",
		} {
			rest := numbers(must(t, dir, base+from+layout).out)
			nearly(t, format+" as "+name, rest, full[len(full)-len(rest):])
		}
	}
	must(t, dir, base+ep2+"--load DIR/native --save DIR/native --ckpt-format native")
	if got, want := weights(t, filepath.Join(dir, "native")), weights(t, filepath.Join(dir, "whole")); got != want {
		t.Errorf("in parts %s, at once %s", got, want)
	}
}

// nearly compares the numbers in lines of the log: losses, which have seven digits, but for
// what the order of f32 sums changes in three steps, norms but for the last of their decimals.
func nearly(t *testing.T, what string, got, want []string) {
	t.Helper()
	if len(got) < 3 {
		t.Errorf("%s: %d lines", what, len(got))
	}
	for i := range got {
		a, b := strings.Fields(got[i]), strings.Fields(want[i])
		if len(a) != len(b) {
			t.Fatalf("%s: %q, want %q", what, got[i], want[i])
		}
		for j := range a {
			x, err := strconv.ParseFloat(a[j], 64)
			y, other := strconv.ParseFloat(b[j], 64)
			limit := 1.1e-3
			if strings.Contains(b[j], "E") {
				limit = 1e-5 * math.Abs(y)
			}
			if (err != nil || other != nil) && a[j] != b[j] || math.Abs(x-y) > limit {
				t.Errorf("%s: %s, want %s in %q", what, a[j], b[j], want[i])
			}
		}
	}
}

// Claim: what a router keeps in f32 next to narrow weights (expert biases, quantiles) is
// read back from every format, whatever the weights' type: the run continues with the same
// numbers as from a native checkpoint.
func TestNarrowExpertsResumeFromEveryFormat(t *testing.T) {
	quantiles := strings.NewReplacer("--moe-router-enable-expert-bias --moe-router-bias-update-rate 1e-2 ", "", "--moe-router-num-groups 2 --moe-router-group-topk 1 ", "",
		"seq_aux_loss --moe-aux-loss-coeff 1e-2", "quantile_balancing").Replace(experts)
	for kept, flags := range map[string]string{"expert bias": experts, "quantiles": quantiles} {
		for _, precision := range []string{"--bf16 ", "--fp16 --initial-loss-scale 1024 "} {
			dir := t.TempDir()
			base := tiny + someData + flags + precision + "--save-interval 3 "
			uncut := numbers(must(t, dir, base).out)
			for _, format := range []string{"native", "torch", "torch_dist"} {
				must(t, dir, base+"--exit-interval 3 --save DIR/"+format+" --ckpt-format "+format)
				rest := numbers(must(t, dir, base+"--load DIR/"+format).out)
				nearly(t, kept+" "+precision+format, rest, uncut[len(uncut)-len(rest):])
			}
		}
	}
}

// Claim: the random numbers of --moe-router-force-load-balancing depend on the sample, the
// position and the expert alone: every layout trains the same run, in every precision.
func TestForcedBalanceInEveryLayout(t *testing.T) {
	dir := t.TempDir()
	for _, precision := range []string{"", "--bf16 "} {
		base := tiny + someData + experts + precision + "--moe-router-force-load-balancing "
		want := numbers(must(t, dir, base).out)
		for name, layout := range map[string]string{
			"micro": "--micro-batch-size 2", "ep2": "--world-size 2 --expert-model-parallel-size 2", "cp2": "--world-size 2 --context-parallel-size 2",
			"tp2": "--world-size 2 --tensor-model-parallel-size 2 --sequence-parallel --expert-tensor-parallel-size 1",
			"pp2": "--world-size 2 --pipeline-model-parallel-size 2",
		} {
			got := numbers(must(t, dir, base+layout).out)
			if precision == "" {
				nearly(t, name, got, want)
			} else if len(got) != len(want) {
				t.Errorf("bf16 %s: %d lines, want %d", name, len(got), len(want))
			}
		}
	}
}

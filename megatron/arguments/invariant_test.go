package arguments

import (
	"strings"
	"testing"

	"monotron/megatron/config"
)

// Claim (docs/invariance.md): --layout-invariant refuses by name what still depends on the layout, and
// says what to use; with the rest of a run it counts tokens, not micro-batches.
func TestLayoutInvariant(t *testing.T) {
	for add, want := range map[string]string{
		"--reduction-leaves 6":    "not a power of two; use 8",
		"--reduction-leaves 1024": "does not divide the",
		"--reduction-leaves 2 --world-size 4 --tensor-model-parallel-size 4":               "4 tensor-parallel ranks with --reduction-leaves 2",
		"--reduction-leaves 2 --world-size 2 --context-parallel-size 2 --cp-comm-type a2a": "cannot be combined with 4 parts of a sequence with --reduction-leaves 2",
		"--sequence-leaves 3":  "--sequence-leaves 3 is not a power of two up to --reduction-leaves 8; use 2",
		"--sequence-leaves 16": "use 8",
		"--world-size 2 --context-parallel-size 2 --cp-comm-type a2a":                                "4 parts of a sequence with --sequence-leaves 1; give --sequence-leaves 4 to all runs that are to have the same bits",
		"--world-size 2 --context-parallel-size 2":                                                   "use --cp-comm-type a2a",
		"--num-experts 4 --moe-aux-loss-coeff 0.01":                                                  "cannot be combined with --moe-router-load-balancing-type aux_loss, which balances each micro-batch; use --moe-router-load-balancing-type seq_aux_loss",
		"--num-experts 4 --moe-router-load-balancing-type global_aux_loss --moe-aux-loss-coeff 0.01": "global_aux_loss, which depends on the micro-batches before",
		"--num-experts 4 --moe-router-load-balancing-type sinkhorn":                                  "sinkhorn, which depends on the tokens of a rank",
		"--num-experts 4 --moe-router-load-balancing-type quantile_balancing":                        "quantile_balancing, which depends on the tokens of a micro-batch",
		"--num-experts 4 --moe-expert-capacity-factor 1":                                             "--moe-expert-capacity-factor, which depends on the tokens of a rank",
		"--num-experts 4 --moe-ffn-hidden-size 12":                                                   "does not divide the 12 channels of an expert: use 4",
		"--num-experts 4 --disable-bias-linear --moe-shared-expert-intermediate-size 4":              "does not divide the 4 channels of the shared expert: use 4",
		"--num-experts 4 --disable-bias-linear --moe-apply-probs-on-input --moe-router-topk 1 --moe-router-pre-softmax --world-size 2 --tensor-model-parallel-size 2 --sequence-parallel": "--moe-apply-probs-on-input under expert tensor parallelism; use --expert-tensor-parallel-size 1",
		"--mtp-num-layers 1 --mtp-detach-heads --position-embedding-type rope": "cannot be combined with --mtp-detach-heads, which has two norms of gradients",
		"--optimizer muon --muon-tp-mode blockwise":                            "cannot be combined with --muon-tp-mode blockwise",
		"--lora-rank 4":                   "adapters",
		"--padded-vocab-in-softmax":       "cannot be combined with --padded-vocab-in-softmax",
		"--dataloader-type cyclic":        "whose order of samples depends on the number of ranks; use --dataloader-type single",
		"--decrease-batch-size-if-needed": "cannot be combined with --decrease-batch-size-if-needed",
		"--group-query-attention --num-query-groups 1 --kv-channels 2": "does not divide the 4 channels of all keys and values: use 4",
	} {
		_, _, err := ParseWith(everything, append(baseline(), strings.Fields("--layout-invariant "+add)...))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", add, err, want)
		}
	}
	c, _, err := ParseWith(everything, append(baseline(), "--layout-invariant", "--device", "cuda"))
	if err != nil || c.Leaves != 8 || c.SequenceLeaves != 1 || !c.CalculatePerTokenLoss || c.LeafSamples != c.GlobalBatchSize {
		t.Errorf("%d leaves, %d of each of %d samples, per token %v, %v", c.Leaves, c.SequenceLeaves, c.LeafSamples, c.CalculatePerTokenLoss, err)
	}
	c, _, err = ParseWith(everything, append(baseline(), "--layout-invariant", "--step-batch-size-schedule", "0:64 1M:8"))
	if err != nil || c.LeafSamples != 64 || c.GlobalBatchSize != 8 {
		t.Errorf("a schedule of 64 and 8: sums of %d samples, last %d, %v", c.LeafSamples, c.GlobalBatchSize, err)
	}
	_, report, err := ParseWith(everything, append(baseline(), "--reduction-leaves", "4", "--sequence-leaves", "2"))
	notices := strings.Join(report.Notices, " ")
	if err != nil || !strings.Contains(notices, "--reduction-leaves has no effect without --layout-invariant") || !strings.Contains(notices, "--sequence-leaves has no effect") {
		t.Errorf("%q, %v", report.Notices, err)
	}
}

// Claim (docs/invariance.md): by default a leaf of weight gradients has 256 positions or more, and a sample at most as many leaves as
// other sums.
func TestSequenceLeaves(t *testing.T) {
	for positions, want := range map[int]int{64: 1, 511: 1, 512: 2, 1024: 4, 2048: 8, 8192: 8} {
		if got := config.SequenceLeaves(8, positions); got != want {
			t.Errorf("%d positions: %d leaves; want %d", positions, got, want)
		}
	}
	if got := config.SequenceLeaves(2, 4096); got != 2 {
		t.Errorf("4096 positions with 2 leaves of other sums: %d", got)
	}
}

package arguments

import (
	"strings"
	"testing"
)

// Claim: what an optimizer or FP8 cannot stand with is refused by name, layouts that cut a block with the nearest legal size.
func TestOptimizersWithOtherFlags(t *testing.T) {
	const (
		free   = "--optimizer schedule_free_adamw --lr-decay-style constant "
		lines  = "--optimizer adaptive_muon "
		eight  = "--optimizer adamw_8bit "
		fp8    = "--fp8-format hybrid --fp8-recipe blockwise --bf16 "
		blocks = fp8 + "--hidden-size 1024 --num-attention-heads 8 --ffn-hidden-size 2048 --seq-length 1024 --max-position-embeddings 1024 "
	)
	for add, want := range map[string]string{
		"--optimizer schedule_free_adamw":                                           "--optimizer schedule_free_adamw needs --lr-decay-style constant",
		free + "--decoupled-lr 0.1":                                                 "leave --decoupled-lr out",
		free + "--offload-folder x":                                                 "all weights before and after a step",
		free + "--save x --ckpt-format torch":                                       "stores AdamW's moments only",
		lines + "--muon-tp-mode blockwise":                                          "use --muon-tp-mode duplicated",
		lines + "--adaptive-muon-moment2-method namo":                               "use normuon or adamuon",
		"--optimizer muon --muon-per-head --muon-no-split-qkv":                      "which updates all heads as one matrix",
		lines + "--optimizer-cpu-offload":                                           "complete matrices",
		eight + "--offload-folder x":                                                "complete blocks",
		eight + "--save x --ckpt-format torch_dist":                                 "stores AdamW's moments only",
		eight + "--use-mup --mup-base-hidden-size 16":                               "--use-mup needs --optimizer adam or sgd, not adamw_8bit",
		fp8 + "--fp8-recipe delayed --fp8-margin 1 --no-fp8-wgrad --fp8-interval 4": "",
		fp8 + "--fp8-recipe delayed --first-last-layers-bf16":                       "cannot be combined with --fp8-recipe delayed",
		fp8 + "--fp8-recipe delayed --fp8-amax-history-len 0":                       "--fp8-amax-history-len",
		fp8 + "--fp8-recipe custom":                                                 "use delayed, tensorwise, blockwise or mxfp8",
		blocks + "--fp8-recipe mxfp8 --world-size 16 --context-parallel-size 16 --cp-comm-type all_gather":                         "",
		blocks + "--fp8-recipe tensorwise --world-size 8 --tensor-model-parallel-size 8 --sequence-parallel":                       "",
		fp8 + "--fp8-recipe tensorwise --world-size 4 --tensor-model-parallel-size 4 --group-query-attention --num-query-groups 2": "use --tensor-model-parallel-size 2",
		"--fp8-format e5m2": "--fp8-format",
		"--fp8-format hybrid --fp8-recipe blockwise --fp16": "--fp8-format cannot be combined with --fp16",
		fp8 + "--num-experts 4 --moe-router-topk 2":         "use --fp8-recipe delayed",
		blocks + "--position-embedding-type rope --multi-latent-attention --world-size 2 --tensor-model-parallel-size 2 --sequence-parallel --mtp-num-layers 1":                                             "",
		blocks + "--fp8-recipe mxfp8 --position-embedding-type rope --seq-length 384 --multi-latent-attention --world-size 16 --tensor-model-parallel-size 8 --context-parallel-size 2 --sequence-parallel": "tokens; use --tensor-model-parallel-size 2",
		fp8 + "--lora-rank 4": "--fp8-format cannot be combined with adapters",
		blocks + "--world-size 8 --tensor-model-parallel-size 8":                                                               "",
		blocks + "--world-size 16 --context-parallel-size 16 --cp-comm-type all_gather":                                        "use --context-parallel-size 4",
		fp8 + "--hidden-size 256 --num-attention-heads 8 --ffn-hidden-size 1024 --world-size 8 --tensor-model-parallel-size 8": "use --tensor-model-parallel-size 2",
		fp8 + "--first-last-layers-bf16 --num-layers-at-start-in-bf16 90":                                                      "add up to more than the",
	} {
		_, _, err := ParseWith(everything, append(baseline(), strings.Fields(add)...))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", add, err, want)
		}
	}
	_, report, err := ParseWith(Options{Layouts: true, Experts: true}, append(baseline(), "--first-last-layers-bf16"))
	if err != nil || !strings.Contains(strings.Join(report.Notices, " "), "--first-last-layers-bf16: the flag has no effect without --fp8-format") {
		t.Errorf("%q, %v", report.Notices, err)
	}
}

// Claim: what an optimizer, muP or FP8 clashes with is one list, so that no correction of the command line meets the next problem.
func TestEveryClashIsReported(t *testing.T) {
	for line, want := range map[string][]string{
		"--optimizer schedule_free_adamw --lr-decay-style cosine --decoupled-lr 0.1": {"needs --lr-decay-style constant", "leave --decoupled-lr out"},
		"--optimizer adaptive_muon --muon-tp-mode blockwise --world-size 4 --tensor-model-parallel-size 4 --group-query-attention --num-query-groups 2 --memory-centric-tiling 2 --attention-output-gate": {
			"this optimizer has moments of complete matrices", "because this optimizer does not support", "needs a query group on each of the 4", "because each tile would be updated as a separate matrix"},
		"--use-mup --optimizer lion --softmax-scale 1 --multi-latent-attention": {
			"needs --mup-base-hidden-size", "needs --optimizer adam or sgd, not lion", "cannot be combined with --softmax-scale", "cannot be combined with multi-latent attention"},
		"--fp8-format hybrid --fp8-recipe blockwise --fp16 --lora-rank 4 --first-last-layers-bf16 --num-layers-at-start-in-bf16 90": {
			"cannot be combined with --fp16", "cannot be combined with adapters", "add up to more than the"},
	} {
		_, _, err := ParseWith(everything, append(baseline(), strings.Fields(line)...))
		if err == nil {
			t.Errorf("%s: nothing is wrong", line)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: no %q in:\n%v", line, part, err)
			}
		}
	}
}

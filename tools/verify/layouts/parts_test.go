package layouts

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// partModels are models that have, between them, every part that only some families have.
var partModels = map[string]string{
	"windows, caps, sinks": "--geglu --normalization RMSNorm --disable-bias-linear --norm-sandwich --apply-layernorm-1p --qk-layernorm --window-size 3,0 --window-attn-skip-freq 2 " +
		"--attention-softcap 2 --logit-softcap 3 --embedding-multiplier 5.6 --residual-multiplier 0.5 --logit-multiplier 2 --softmax-type learnable " +
		`--position-embedding-type rope --window-rope-parameters {"rope_type":"yarn","rope_theta":500,"factor":4,"original_max_position_embeddings":8}`,
	"chunks, one norm": "--swiglu --disable-bias-linear --add-proj-bias --parallel-residual --parallel-one-norm --norm-without-bias --qk-l2-norm --rotary-interleaved --attention-chunk-size 5 " +
		"--window-attn-skip-freq [1,1,0,1] --no-rope-freq [0,0,1,0] --query-growth 0.3 --query-growth-from 4 --position-embedding-type rope --activation-func-clamp-value 1 " +
		"--glu-linear-offset 1 --untie-embeddings-and-output-weights",
	"norms behind sums": "--relu --norm-behind-sum --position-offset 2 --disable-proj-bias",
	"multi-token prediction apart": "--swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope --untie-embeddings-and-output-weights --num-experts 4 --moe-router-topk 2 " +
		"--moe-aux-loss-coeff 0.1 --moe-z-loss-coeff 0.01 --moe-layer-freq [0,1,1,1] --mtp-num-layers 2 --mtp-use-repeated-layer --mtp-detach-heads --clip-grad 0.1 --hidden-dropout 0.1",
	"ALiBi by key": "--position-embedding-type alibi --alibi-by-key --swiglu --normalization RMSNorm --disable-bias-linear --qk-layernorm --qk-layernorm-whole",
}

// Claim: parts of attention, norms and factors that only some families have train the same
// model under tensor, sequence, pipeline, context and data parallelism and recomputation.
func TestPartsAgree(t *testing.T) {
	// Adam divides small gradients by their own size: at a rate of 0.01 their last bits move
	// weights by 4e-5, and the bound of the residual stream with them. An element whose gradient is
	// hardly more than its rounding moves by the sign of that: a larger epsilon leaves it where it is.
	const sizes = "--num-layers 4 --hidden-size 32 --num-attention-heads 4 --group-query-attention --num-query-groups 2 --kv-channels 8 --ffn-hidden-size 64 --seq-length 16 " +
		"--max-position-embeddings 32 --vocab-size 61 --tokenizer-type NullTokenizer --micro-batch-size 2 --global-batch-size 16 --train-iters 2 --lr 0.001 --lr-decay-style constant --adam-eps 1e-6 "
	d := newSampler(3)
	defer d.said(t)
	for _, name := range slices.Sorted(maps.Keys(partModels)) {
		t.Run(name, func(t *testing.T) {
			m, err := parse(name, strings.Fields(sizes+partModels[name]))
			if err != nil {
				t.Fatal(err)
			}
			d.agree(t, m, Options{World: 4, Steps: 2})
		})
	}
}

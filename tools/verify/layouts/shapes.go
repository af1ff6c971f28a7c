package layouts

// Shapes are the models that are trained where none is given, each by its flags.
var Shapes = []struct{ Name, Flags string }{
	{"gpt2", "--attention-dropout 0.1 --hidden-dropout 0.1"},
	{"llama", llama},
	{"bloom", "--position-embedding-type alibi --embed-layernorm --attention-dropout 0.1 --hidden-dropout 0.1"},
	{"mtp", "--position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear --group-query-attention --num-query-groups 2 " +
		"--attention-dropout 0.1 --hidden-dropout 0.1 --logit-multiplier 2 --mtp-num-layers 2 --mtp-loss-scaling-factor 0.5"},
	{"mla", latent + "--hidden-dropout 0.1"},
	{"delta", delta + "--hidden-dropout 0.1"},
	// Families with all of their parts.
	{"gemma3", "--position-embedding-type rope --rotary-base 1000000 --rope-parameters {\"rope_type\":\"linear\",\"factor\":8} --window-rope-parameters {\"rope_type\":\"default\",\"rope_theta\":10000} " +
		"--normalization RMSNorm --apply-layernorm-1p --norm-sandwich --geglu --disable-bias-linear --group-query-attention --num-query-groups 4 --qk-layernorm --softmax-scale 0.3 " +
		"--attention-dropout 0 --hidden-dropout 0 --window-size 3,0 --window-attn-skip-freq 6 --embedding-multiplier 5.65"},
	{"gpt-oss", "--position-embedding-type rope --rotary-base 150000 --rope-parameters {\"rope_type\":\"yarn\",\"factor\":8,\"original_max_position_embeddings\":8,\"beta_fast\":32,\"beta_slow\":1,\"truncate\":false} " +
		"--normalization RMSNorm --quick-geglu --activation-func-clamp-value 0.8 --glu-linear-offset 1 --untie-embeddings-and-output-weights --group-query-attention --num-query-groups 4 " +
		"--softmax-type learnable --window-size 3,0 --window-attn-skip-freq 2 --attention-dropout 0 --hidden-dropout 0 --init-method-std 0.1 " +
		"--num-experts 8 --moe-ffn-hidden-size 16 --moe-router-topk 3 --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.02"},
	{"deepseek-v3", latent + "--hidden-dropout 0 --init-method-std 0.1 --mtp-num-layers 1 --mtp-loss-scaling-factor 0.3 " + deepseek + "--moe-router-group-best 2"},
	// States of gated delta nets let rounding grow beyond the bounds if the weights start as wide as those of other experts.
	{"qwen3-next", delta + "--hidden-dropout 0 --init-method-std 0.03 --num-experts 8 --moe-ffn-hidden-size 16 --moe-router-topk 3 --moe-shared-expert-intermediate-size 16 --moe-shared-expert-gate " +
		"--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.02"},
	// With Gemma 4's scale of 1 scores of so small a model are sharp, and rounding grows beyond the bounds in
	// the second step.
	{"gemma4", "--position-embedding-type rope --rope-parameters {\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.5} --window-rope-parameters {\"rope_type\":\"default\",\"rope_theta\":100} " +
		"--normalization RMSNorm --geglu --disable-bias-linear --group-query-attention --num-query-groups 8 --qk-layernorm --v-layernorm --norm-sandwich --layer-scalar --softmax-scale 0.3 " +
		"--attention-dropout 0 --hidden-dropout 0.1 --window-size 3,0 --window-attn-skip-freq 4 --full-attention-kv-channels 12 --full-attention-query-groups 4 --keys-are-values " +
		"--embedding-multiplier 4 --logit-softcap 30"},
	{"gemma4-small", gemma + "--num-query-groups 8 --softmax-scale 0.3 --kv-shared-layers 4 --double-wide-mlp --per-layer-input-size 6 --full-attention-kv-channels 12 --window-attn-skip-freq ([1]*2+[0]*1+[1]*4+[0]*1)"},
	{"gemma4-moe", gemma + "--num-query-groups 4 --softmax-scale 0.3 --full-attention-kv-channels 12 --full-attention-query-groups 2 --keys-are-values --window-attn-skip-freq 4 " +
		"--num-experts 8 --moe-ffn-hidden-size 16 --moe-router-topk 3 --moe-router-load-balancing-type none --moe-aux-loss-coeff 0 --moe-parallel-mlp --init-method-std 0.1"},
	{"lfm2", "--position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear --group-query-attention --num-query-groups 2 --qk-layernorm " +
		"--attention-dropout 0 --hidden-dropout 0.1 --short-conv-freq ([1]*2+[0]*1+[1]*3+[0]*1+[1]*1)"},
	// Time steps of up to 0.1, as scans start with, let a state grow so little that errors in it would not show.
	{"granite4-h", scans + "--mamba-num-groups 1 --mamba-state-dim 8 --num-experts 4 --moe-ffn-hidden-size 24 --moe-router-topk 2 --moe-shared-expert-intermediate-size 16 --moe-aux-loss-coeff 0.02 --init-method-std 0.1"},
	{"mamba", scans + "--mamba-num-groups 4 --mamba-state-dim 6 --mamba-dt-max 2"},
	{"lora", llama + " --lora-rank 4 --lora-alpha 8 --lora-dropout 0.1 --lora-target-modules q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj,embed_tokens,lm_head --lora-modules-to-save norm"},
	// Trained embeddings: else nobody needs the first layer's input gradient.
	{"dora", llama + " --lora-rank 4 --use-dora --use-rslora --lora-modules-to-save embed_tokens"},
	{"lora-moe", mixed + " --num-experts 4 --moe-ffn-hidden-size 24 --moe-router-topk 2 --lora-rank 4 --lora-alpha 8 --lora-modules-to-save embed_tokens"},
	// Granite 4's single group of B and C is on all tensor-parallel ranks.
	{"lora-mamba", scans + "--mamba-num-groups 1 --mamba-state-dim 8 --lora-rank 4 --lora-alpha 8 --lora-dropout 0.1 --lora-target-modules in_proj,out_proj,q_proj,output_linear"},
	{"dora-mamba", scans + "--mamba-num-groups 4 --mamba-state-dim 6 --lora-rank 4 --use-dora --untie-embeddings-and-output-weights --lora-target-modules in_proj,out_proj --lora-modules-to-save embed_tokens"},
	{"sft", llama + " --finetune-data rows --finetune-packing bfd --vocab-size 130"},
	{"dpo", llama + " --finetune-data rows --vocab-size 130 --tuning dpo --lora-rank 4 --lora-alpha 8 --lora-modules-to-save embed_tokens"},
	{"mixtral", mixed + " --num-experts 4 --moe-ffn-hidden-size 24 --moe-router-topk 2 --moe-aux-loss-coeff 0.02 --moe-input-jitter-eps 0.01"},
	{"qwen3-moe", mixed + " --qk-layernorm --num-experts 8 --moe-ffn-hidden-size 16 --moe-router-topk 3 --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.02"},
	{"global-moe", mixed + " --qk-layernorm --num-experts 8 --moe-ffn-hidden-size 16 --moe-router-topk 3 --moe-router-load-balancing-type global_aux_loss seq_aux_loss " +
		"--moe-aux-loss-coeff 0.02 0.01 --moe-global-aux-exact"},
	{"deepseek-moe", mixed + " " + deepseek + "--moe-z-loss-coeff 0.001"},
	// Layers of one sublayer: of each kind, some next to each other; experts at a latent size.
	{"nemotron-h", "--hybrid-layer-pattern M-E*ME-M --position-embedding-type none --normalization RMSNorm --squared-relu --disable-bias-linear --untie-embeddings-and-output-weights " +
		"--group-query-attention --num-query-groups 2 --kv-channels 6 --attention-dropout 0 --hidden-dropout 0.1 --ffn-hidden-size 64 --mamba-num-heads 8 --mamba-head-dim 6 --mamba-num-groups 4 --mamba-state-dim 6 " +
		"--mamba-dt-min 0.2 --num-experts 4 --moe-ffn-hidden-size 24 --moe-latent-size 20 --moe-router-topk 2 --moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-router-topk-scaling-factor 2.5 " +
		"--moe-shared-expert-intermediate-size 16 --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.02 --init-method-std 0.1"},
}

// gemma is what Gemma 4's shapes for small machines and with experts have in common.
const gemma = "--position-embedding-type rope --rope-parameters {\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.5} --window-rope-parameters {\"rope_type\":\"default\",\"rope_theta\":100} " +
	"--normalization RMSNorm --geglu --disable-bias-linear --group-query-attention --qk-layernorm --v-layernorm --norm-sandwich --layer-scalar --attention-dropout 0 --hidden-dropout 0 " +
	"--window-size 3,0 --embedding-multiplier 4 --logit-softcap 30 "

// latent is multi-latent attention in a model like DeepSeek V2 without experts.
const latent = "--position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear --untie-embeddings-and-output-weights --qk-layernorm " +
	"--multi-latent-attention --q-lora-rank 24 --kv-lora-rank 16 --qk-head-dim 8 --qk-pos-emb-head-dim 4 --v-head-dim 8 --attention-dropout 0 "

// deepseek are DeepSeek V3's experts: chosen in groups by sigmoid scores with biases, after a dense first layer.
const deepseek = "--num-experts 8 --moe-ffn-hidden-size 16 --moe-router-topk 4 --moe-layer-freq ([0]*1+[1]*7) --moe-router-score-function sigmoid " +
	"--moe-router-enable-expert-bias --moe-router-num-groups 4 --moe-router-group-topk 2 --moe-router-topk-scaling-factor 2.5 " +
	"--moe-shared-expert-intermediate-size 16 --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.01 "

// delta is a model like Qwen3-Next without experts: gated delta nets, and gated attention in every fourth layer.
const delta = "--position-embedding-type rope --rotary-percent 0.5 --normalization RMSNorm --swiglu --disable-bias-linear --untie-embeddings-and-output-weights " +
	"--group-query-attention --num-query-groups 2 --qk-layernorm --apply-layernorm-1p --attention-output-gate --attention-dropout 0 " +
	"--experimental-attention-variant gated_delta_net --linear-attention-freq 4 --linear-key-head-dim 4 --linear-value-head-dim 6 --linear-num-key-heads 8 --linear-num-value-heads 16 "

// scans are what shapes with state-space scans have in common.
const scans = "--position-embedding-type none --normalization RMSNorm --swiglu --disable-bias-linear --group-query-attention --num-query-groups 2 --attention-dropout 0 --hidden-dropout 0 " +
	"--embedding-multiplier 3 --residual-multiplier 0.5 --logit-multiplier 0.5 --softmax-scale 0.2 --mamba-layer-freq ([1]*3+[0]*1+[1]*4) --mamba-head-dim 8 --mamba-dt-min 0.2 "

// llama is Llama's architecture.
const llama = "--position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear --untie-embeddings-and-output-weights " +
	"--group-query-attention --num-query-groups 2 --attention-dropout 0 --hidden-dropout 0"

// mixed is what the shapes with experts have in common. Their weights start wider, so that
// a token's experts lie apart: a choice between equals would be rounding's.
const mixed = "--position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear --untie-embeddings-and-output-weights " +
	"--group-query-attention --num-query-groups 4 --attention-dropout 0 --hidden-dropout 0 --init-method-std 0.1"

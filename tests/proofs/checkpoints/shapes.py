"""Random tiny models of every family, for the proofs that make them by transformers."""
import math
import torch

VOCAB = 64
ABSENT = 'a key that the family does not have'


def delta(rng):
    heads, keys, layers = rng.choice([2, 4]), rng.choice([1, 2, 3]), rng.choice([2, 3, 4])
    c = dict(hidden_size=heads * 8, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=divisor(rng, heads), head_dim=rng.choice([8, 16]),
             linear_num_key_heads=keys, linear_num_value_heads=keys * rng.choice([1, 2, 3]), linear_key_head_dim=rng.choice([4, 6, 10]), linear_value_head_dim=rng.choice([4, 8, 5]),
             linear_conv_kernel_dim=rng.choice([2, 4, 3]), rms_norm_eps=1e-3, tie_word_embeddings=rng.random() < .5)
    if rng.random() < .7:
        kinds = [rng.choice(['linear_attention', 'full_attention']) for _ in range(layers)]
        if len(set(kinds)) == 1:
            kinds[0], kinds[-1] = 'linear_attention', 'full_attention'
        c['layer_types'] = kinds
    if rng.random() < .7:
        c['rope_parameters'] = {'rope_type': 'default', 'rope_theta': rng.choice([1e4, 1e6])}
        if rng.random() < .5:
            c['rope_parameters']['partial_rotary_factor'] = rng.choice([.25, .5, 1.0])
    return c


def experts(rng):
    return dict(num_experts=rng.choice([4, 5]), num_experts_per_tok=rng.choice([2, 3]), moe_intermediate_size=rng.choice([8, 10]), shared_expert_intermediate_size=12, router_aux_loss_coef=0.0)


def lfm2(rng):
    heads, layers = rng.choice([2, 4]), rng.choice([2, 3, 4])
    c = dict(hidden_size=heads * 6, intermediate_size=rng.choice([24, 40]), num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=divisor(rng, heads), norm_eps=rng.choice([1e-5, 1e-3]))
    if rng.random() < .5:
        c.update(block_multiple_of=rng.choice([4, 8]), block_ffn_dim_multiplier=rng.choice([1.0, 1.3]))
    else:
        c['block_auto_adjust_ff_dim'] = False
    if rng.random() < .5:
        c['layer_types'] = [rng.choice(['conv', 'full_attention']) for _ in range(layers)]
    elif rng.random() < .7:
        c['full_attn_idxs'] = rng.sample(range(layers), 1)
    if rng.random() < .5:
        c['conv_L_cache'] = rng.choice([2, 4])
    return c


def gemma4(rng):
    heads, layers = rng.choice([2, 4]), rng.choice([2, 3, 4])
    kinds = [rng.choice(['sliding_attention', 'full_attention']) for _ in range(layers)]
    kinds[0], kinds[-1] = 'sliding_attention', 'full_attention'
    c = dict(hidden_size=heads * 6, intermediate_size=rng.choice([24, 40]), num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=divisor(rng, heads), head_dim=rng.choice([4, 8]),
             global_head_dim=rng.choice([8, 12, 16]), sliding_window=rng.choice([3, 7]), hidden_size_per_layer_input=0, layer_types=kinds, rms_norm_eps=rng.choice([1e-6, 1e-3]),
             attention_k_eq_v=rng.random() < .7, tie_word_embeddings=rng.random() < .7)
    if rng.random() < .6:
        c['num_global_key_value_heads'] = divisor(rng, heads)
    if rng.random() < .6:
        c['final_logit_softcapping'] = rng.choice([3.0, 30.0])
    if rng.random() < .5:
        c['rope_parameters'] = {'full_attention': {'rope_type': 'proportional', 'partial_rotary_factor': rng.choice([.25, .5, 1.0]), 'rope_theta': 1e5},
                                'sliding_attention': {'rope_type': 'default', 'rope_theta': 5e3}}
    return c


def gemma4_small(rng):
    """As E2B and E4B: layers that share keys and values, embeddings of each layer."""
    c = gemma4(rng)
    layers = rng.choice([3, 4, 5])
    shared = rng.randrange(layers - 1)
    kinds = [rng.choice(['sliding_attention', 'full_attention']) for _ in range(layers)]
    kinds[:2], kinds[-1] = rng.sample(['sliding_attention', 'full_attention'], 2), 'full_attention'
    return dict(c, model_type='gemma4_text', num_hidden_layers=layers, layer_types=kinds, num_kv_shared_layers=shared, use_double_wide_mlp=rng.random() < .6,
                hidden_size_per_layer_input=rng.choice([4, 6, 10]), vocab_size_per_layer_input=VOCAB)  # its class fails with 0 and shared layers


def gemma4_experts(rng):
    """As 26B-A4B: experts in parallel with an MLP."""
    return dict(gemma4(rng), model_type='gemma4_text', enable_moe_block=True, num_experts=rng.choice([4, 7]), top_k_experts=rng.choice([2, 3]), moe_intermediate_size=rng.choice([8, 20]))


def ministral3(rng):
    heads, layers = rng.choice([2, 4]), rng.choice([1, 2, 3])
    c = dict(hidden_size=heads * 6, intermediate_size=rng.choice([24, 40]), num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=divisor(rng, heads), head_dim=rng.choice([4, 8]),
             rms_norm_eps=rng.choice([1e-5, 1e-3]), tie_word_embeddings=rng.random() < .5, sliding_window=rng.choice([None, None, 5]))
    c['rope_parameters'] = {'rope_type': 'yarn', 'rope_theta': 1e4, 'factor': rng.choice([2.0, 4.0]), 'original_max_position_embeddings': rng.choice([4, 8, 16]),
                            'llama_4_scaling_beta': rng.choice([.1, .5]), 'mscale': 1.0, 'mscale_all_dim': 1.0}
    if rng.random() < .3:
        for key in ('mscale', 'mscale_all_dim'):
            del c['rope_parameters'][key]
    return c


def granite(rng):
    """As Granite 4: state-space scans in most layers."""
    heads, layers, scans = rng.choice([2, 4]), rng.choice([2, 3, 4]), rng.choice([2, 4, 6])
    c = dict(hidden_size=heads * 6, intermediate_size=rng.choice([24, 40]), shared_intermediate_size=rng.choice([16, 28]), num_hidden_layers=layers, num_attention_heads=heads,
             num_key_value_heads=divisor(rng, heads), rms_norm_eps=rng.choice([1e-5, 1e-3]), tie_word_embeddings=rng.random() < .7, attention_bias=rng.random() < .3, num_local_experts=0,
             embedding_multiplier=rng.choice([1.0, 3.0]), residual_multiplier=rng.choice([1.0, .5]), attention_multiplier=rng.choice([.2, .4]), logits_scaling=rng.choice([1.0, 2.0]),
             mamba_n_heads=scans, mamba_n_groups=divisor(rng, scans), mamba_d_state=rng.choice([3, 8, 16]), mamba_d_conv=rng.choice([2, 3, 4]), mamba_chunk_size=rng.choice([6, 16, 256]),
             mamba_conv_bias=rng.random() < .7)
    if rng.random() < .8:
        c['layer_types'] = [rng.choice(['linear_attention', 'linear_attention', 'full_attention']) for _ in range(layers)]
    if rng.random() < .4:
        c['position_embedding_type'] = 'rope'
    if rng.random() < .4:
        c['time_step_limit'] = rng.choice([(.1, 1.5), (.3, 50.0), (.0, .7)])
    return c


def granite_experts(rng):
    return dict(granite(rng), model_type='granitemoehybrid', num_local_experts=rng.choice([4, 5]), num_experts_per_tok=rng.choice([2, 3]), router_aux_loss_coef=0.0)


def mamba2(rng):
    """Layers that are scans alone."""
    heads = rng.choice([2, 4, 6])
    width = rng.choice([4, 6, 8])
    c = dict(hidden_size=heads * width // 2, expand=2, num_hidden_layers=rng.choice([1, 2, 3]), num_heads=heads, head_dim=width, n_groups=divisor(rng, heads), state_size=rng.choice([3, 8, 16]),
             conv_kernel=rng.choice([2, 3, 4]), chunk_size=rng.choice([6, 16, 256]), use_conv_bias=rng.random() < .7, layer_norm_epsilon=rng.choice([1e-5, 1e-3]), tie_word_embeddings=rng.random() < .5)
    if rng.random() < .4:
        c['time_step_limit'] = rng.choice([(.1, 1.5), (.3, 50.0), (.0, .7)])
    return c


def nemotron(rng):
    """As Nemotron-H: layers of one sublayer. The class takes the lower limit of time steps from time_step_min, and has no upper one."""
    heads, layers, scans, least = rng.choice([2, 4]), rng.choice([3, 4, 5]), rng.choice([2, 4, 6]), rng.choice([1e-9, .1, .3])
    kinds = [rng.choice(['linear_attention', 'linear_attention', 'full_attention', 'mlp']) for _ in range(layers)]
    kinds[rng.randrange(layers)] = 'linear_attention'
    return dict(hidden_size=heads * 6, intermediate_size=rng.choice([24, 40]), layers_block_type=kinds, num_attention_heads=heads, num_key_value_heads=divisor(rng, heads), head_dim=rng.choice([4, 8]),
                layer_norm_epsilon=rng.choice([1e-5, 1e-3]), mamba_num_heads=scans, n_groups=divisor(rng, scans), mamba_head_dim=rng.choice([3, 4, 8]), ssm_state_size=rng.choice([3, 8, 16]),
                conv_kernel=rng.choice([2, 3, 4]), chunk_size=rng.choice([6, 16, 128]), use_conv_bias=rng.random() < .7, time_step_min=least, time_step_limit=[least, 1e6])


def nemotron_experts(rng):
    """As Nemotron 3: mixtures without a gate, too."""
    c, groups = nemotron(rng), rng.choice([(1, 1), (1, 1), (2, 1), (2, 2)])
    kinds = c['layers_block_type']
    kinds[rng.choice([i for i in range(len(kinds)) if kinds.count('linear_attention') > 1 or kinds[i] != 'linear_attention'])] = 'moe'
    return dict(c, model_type='nemotron_h', n_routed_experts=rng.choice([4, 6]), num_experts_per_tok=2, n_group=groups[0], topk_group=groups[1], moe_intermediate_size=rng.choice([8, 10]),
                moe_shared_expert_intermediate_size=rng.choice([12, 20]), routed_scaling_factor=rng.choice([1.0, 2.5]), moe_latent_size=rng.choice([None, 4, 10]))


def divisor(rng, n):
    return rng.choice([d for d in (1, 2, n) if n % d == 0])


def dense(rng, **more):
    """What most families have; without more, a Llama."""
    heads = rng.choice([2, 4])
    return dict(dict(hidden_size=heads * 8, intermediate_size=rng.choice([24, 40]), num_hidden_layers=rng.choice([1, 2, 3]), num_attention_heads=heads, num_key_value_heads=divisor(rng, heads),
                     rms_norm_eps=rng.choice([1e-6, 1e-5, 1e-3]), tie_word_embeddings=rng.random() < .5), **more)


def rope(rng, *more, partial=False):
    """A rule for rotary angles, or none, so that the class's own counts."""
    kind = rng.choice(['default', 'linear', 'llama3', 'yarn', *more])
    c = {'rope_type': kind, 'rope_theta': rng.choice([1e4, 5e5])}
    if kind in ('linear', 'dynamic'):
        c['factor'] = rng.choice([2.0, 4.0])
    if kind == 'llama3':
        c.update(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
    if kind == 'yarn':
        c.update(factor=rng.choice([2.0, 4.0]), original_max_position_embeddings=rng.choice([8, 16]))
    if partial and kind == 'default':
        c['partial_rotary_factor'] = rng.choice([.25, .5, 1.0])
    return {} if rng.random() < .3 else {'rope_parameters': c}


def slides(rng, layers):
    return [rng.choice(['sliding_attention', 'full_attention']) for _ in range(layers)]


def wide(rng, c):
    """Heads that do not divide the width."""
    return dict(c, head_dim=rng.choice([4, 8, 12])) if rng.random() < .6 else c


def llama(rng):
    return dict(wide(rng, dense(rng)), attention_bias=rng.random() < .3, mlp_bias=rng.random() < .3, **rope(rng, 'dynamic'))


def mistral(rng):
    return dict(wide(rng, dense(rng)), sliding_window=rng.choice([None, 1, 5]), **rope(rng))


def mixtral(rng):
    return dict(mistral(rng), head_dim=rng.choice([4, 8, 12]), num_local_experts=rng.choice([4, 5]), num_experts_per_tok=rng.choice([2, 3]), router_aux_loss_coef=0.0)


def qwen(rng, heads=True):
    c = wide(rng, dense(rng)) if heads else dense(rng)
    if rng.random() < .6:
        c.update(use_sliding_window=True, sliding_window=rng.choice([3, 7]), max_window_layers=rng.choice([0, 1, 2]))
    return dict(c, **rope(rng))


def qwen2(rng):
    c = qwen(rng, False)
    if c.get('use_sliding_window') and rng.random() < .5:
        c.update(layer_types=slides(rng, c['num_hidden_layers']))
    return c


def qwen_experts(rng, heads):
    c = dense(rng, num_experts=rng.choice([4, 7]), num_experts_per_tok=rng.choice([2, 3]), norm_topk_prob=rng.random() < .5, moe_intermediate_size=rng.choice([8, 20]), router_aux_loss_coef=0.0)
    if c['num_hidden_layers'] > 1:
        c.update(rng.choice([{}, {'mlp_only_layers': [rng.randrange(c['num_hidden_layers'])]}, {'decoder_sparse_step': 2}]))
    return dict(wide(rng, c) if heads else c, **rope(rng))


def qwen2_experts(rng):
    return dict(qwen_experts(rng, False), shared_expert_intermediate_size=rng.choice([8, 24]), qkv_bias=rng.random() < .7)


def olmoe(rng):
    return dense(rng, num_experts=rng.choice([4, 7]), num_experts_per_tok=rng.choice([2, 3]), norm_topk_prob=rng.random() < .5, router_aux_loss_coef=0.0, **rope(rng))


def olmo3(rng):
    c = dense(rng, sliding_window=rng.choice([3, 7]))
    c['layer_types'] = slides(rng, c['num_hidden_layers'])
    rule = rope(rng)
    if rule:
        full = rule['rope_parameters']
        rule['rope_parameters'] = {'full_attention': full, 'sliding_attention': {'rope_type': 'default', 'rope_theta': full['rope_theta']}}
    return dict(c, **rule)


def sigmoid_router(rng):
    """A group is scored by its two best experts."""
    groups = rng.choice([(1, 1), (1, 1), (4, 2), (2, 1)])
    return dict(n_routed_experts=8, num_experts_per_tok=rng.choice([2, 3]), n_group=groups[0], topk_group=groups[1], moe_intermediate_size=rng.choice([8, 10]), n_shared_experts=rng.choice([1, 2]),
                routed_scaling_factor=rng.choice([1.0, 2.5]), num_nextn_predict_layers=0)


def glm4_experts(rng):
    c = wide(rng, dense(rng, use_qk_norm=rng.random() < .5, attention_bias=rng.random() < .5))
    return dict(c, **sigmoid_router(rng), first_k_dense_replace=rng.randrange(c['num_hidden_layers']), **rope(rng, partial=True))


def latent(rng):
    heads, layers = rng.choice([2, 4]), rng.choice([1, 2, 3])
    c = dense(rng, num_hidden_layers=layers, kv_lora_rank=rng.choice([8, 12]), q_lora_rank=rng.choice([None, 10]), qk_nope_head_dim=rng.choice([4, 6]), qk_rope_head_dim=rng.choice([2, 4]),
              v_head_dim=rng.choice([4, 6, 12]), first_k_dense_replace=rng.randrange(layers))
    c.update(hidden_size=heads * 8, num_attention_heads=heads, num_key_value_heads=heads)
    if rng.random() < .6:
        c['rope_parameters'] = {'rope_type': 'yarn', 'rope_theta': 1e4, 'factor': rng.choice([2.0, 4.0]), 'original_max_position_embeddings': rng.choice([8, 16]), 'beta_fast': 32.0, 'beta_slow': 1.0,
                                'mscale': rng.choice([.707, 1.0]), 'mscale_all_dim': rng.choice([.707, 1.0])}
    return c


def deepseek2(rng):
    """A group is scored by its best expert."""
    groups = rng.choice([{}, {}, dict(topk_method='group_limited_greedy', n_group=4, topk_group=2)])
    return dict(latent(rng), n_routed_experts=8, num_experts_per_tok=rng.choice([2, 3]), moe_intermediate_size=rng.choice([8, 10]), n_shared_experts=rng.choice([1, 2]),
                routed_scaling_factor=rng.choice([1.0, 4.0]), **groups)


def deepseek3(rng):
    return dict(latent(rng), **sigmoid_router(rng))


def glm4_lite(rng):
    """As DeepSeek V3, with a list of the layers that have experts."""
    c = deepseek3(rng)
    first = c.pop('first_k_dense_replace')
    return dict(c, mlp_layer_types=['dense'] * first + ['sparse'] * (c['num_hidden_layers'] - first))


def minimax(rng):
    return dict(dense(rng), head_dim=rng.choice([8, 16]), num_local_experts=rng.choice([4, 6]), num_experts_per_tok=rng.choice([2, 3]), router_aux_loss_coef=0.0,
                **(rope(rng, partial=True) if rng.random() < .5 else {'rope_parameters': {'rope_type': 'default', 'rope_theta': 1e4, 'partial_rotary_factor': .5}}))


def gpt_oss(rng):
    c = dense(rng, head_dim=rng.choice([4, 8]), intermediate_size=rng.choice([8, 20]), num_local_experts=rng.choice([4, 5]), num_experts_per_tok=rng.choice([2, 3]), sliding_window=rng.choice([3, 7]),
              swiglu_limit=rng.choice([.8, 7.0]), router_aux_loss_coef=0.0, tie_word_embeddings=False, attention_bias=rng.random() < .8)
    if rng.random() < .7:
        c['layer_types'] = slides(rng, c['num_hidden_layers'])
    if rng.random() < .7:
        c['rope_parameters'] = {'rope_type': 'yarn', 'rope_theta': 150000.0, 'factor': 8.0, 'original_max_position_embeddings': 16, 'beta_fast': 32.0, 'beta_slow': 1.0, 'truncate': rng.random() < .5}
    return c


def gemma2(rng):
    c = dense(rng, head_dim=rng.choice([4, 8, 10]), query_pre_attn_scalar=rng.choice([8, 10]), sliding_window=rng.choice([3, 7]), attn_logit_softcapping=rng.choice([None, 4.0, 50.0]),
              final_logit_softcapping=rng.choice([None, 6.0, 30.0]), attention_bias=rng.random() < .3)
    return dict(c, **({'layer_types': slides(rng, c['num_hidden_layers'])} if rng.random() < .6 else {}))


def gemma3(rng):
    c = dense(rng, head_dim=rng.choice([4, 8, 10]), query_pre_attn_scalar=rng.choice([8, 10]), sliding_window=rng.choice([3, 7]), attention_bias=rng.random() < .3)
    if rng.random() < .7:
        c['layer_types'] = slides(rng, c['num_hidden_layers'])
    if rng.random() < .6:
        c['rope_parameters'] = {'sliding_attention': {'rope_type': 'default', 'rope_theta': 1e3}, 'full_attention': {'rope_type': 'linear', 'factor': 8.0, 'rope_theta': 1e5}}
    return c


def exaone4(rng):
    c = wide(rng, dense(rng, sliding_window=rng.choice([None, 3, 7])))
    layers = c['num_hidden_layers']
    c['layer_types'] = ['sliding_attention', *slides(rng, layers - 1)] if c['sliding_window'] else ['full_attention'] * layers
    return dict(c, **rope(rng))


def hunyuan(rng):
    c = dense(rng, head_dim=rng.choice([4, 8, 12]), attention_bias=rng.random() < .3)
    return dict(c, rope_parameters={'rope_type': 'dynamic', 'rope_theta': 1e4, 'alpha': rng.choice([10.0, 100.0]), 'factor': 1.0}) if rng.random() < .6 else c


def granite_dense(rng):
    return dense(rng, attention_bias=rng.random() < .3, mlp_bias=rng.random() < .3, embedding_multiplier=rng.choice([1.0, 3.0]), logits_scaling=rng.choice([1.0, 4.0]), residual_multiplier=rng.choice([1.0, .3]),
                 attention_multiplier=rng.choice([.2, .4]), **rope(rng))


def llama4(rng):
    c = dense(rng, head_dim=rng.choice([4, 8]), intermediate_size_mlp=rng.choice([24, 40]), num_local_experts=2, moe_layers=[], use_qk_norm=rng.random() < .7, attention_chunk_size=rng.choice([6, 9]),
              attn_temperature_tuning=rng.random() < .7, floor_scale=rng.choice([4, 8]), attn_scale=.3, attention_bias=rng.random() < .3, tie_word_embeddings=False)
    c['no_rope_layers'] = [rng.choice([0, 1]) for _ in range(c['num_hidden_layers'])]
    return dict(c, layer_types=['chunked_attention' if rotated else 'full_attention' for rotated in c['no_rope_layers']])


def smollm3(rng):
    c = wide(rng, dense(rng, attention_bias=rng.random() < .3, mlp_bias=rng.random() < .3))
    c.update(rng.choice([{}, {'no_rope_layers': [rng.choice([0, 1]) for _ in range(c['num_hidden_layers'])]}, {'no_rope_layer_interval': rng.choice([1, 2])}]))
    if rng.random() < .5:
        c.update(use_sliding_window=True, sliding_window=rng.choice([3, 7]))
    return dict(c, **rope(rng))


def phi3(rng):
    """We use the long table of LongRoPE where a model has more positions than the original length, transformers where a text has."""
    c = dense(rng)
    width = c['hidden_size'] // c['num_attention_heads']
    if rng.random() < .4:
        short, long = ([round(1 + i * step, 2) for i in range(width // 2)] for step in (.3, 1.0))
        return dict(c, max_position_embeddings=48, original_max_position_embeddings=48, rope_parameters={'rope_type': 'longrope', 'rope_theta': 1e4, 'short_factor': short, 'long_factor': long, 'original_max_position_embeddings': 48})
    return dict(c, sliding_window=rng.choice([None, 5]), rope_parameters={'rope_type': 'default', 'rope_theta': 1e4, 'partial_rotary_factor': rng.choice([.5, .75, 1.0])})


def starcoder2(rng):
    c = dense(rng, use_bias=rng.random() < .7, sliding_window=rng.choice([None, 5]))
    c['hidden_act'] = rng.choice(['gelu', 'gelu_pytorch_tanh']) if c['use_bias'] else 'gelu'  # Megatron's flags have no tanh without biases
    c['norm_epsilon'] = c.pop('rms_norm_eps')
    return dict(c, **rope(rng))


def cohere(rng):
    c = dense(rng, logit_scale=rng.choice([.0625, .25, 1.0]), attention_bias=rng.random() < .3)
    c['layer_norm_eps'] = c.pop('rms_norm_eps')
    return dict(c, **rope(rng))


def seed_oss(rng):
    return dict(wide(rng, dense(rng)), attention_bias=rng.random() < .6, attention_out_bias=rng.random() < .4, mlp_bias=rng.random() < .4, **rope(rng))


def plain(rng, **more):
    heads = rng.choice([2, 4])
    return dict(hidden_size=heads * 8, num_hidden_layers=rng.choice([1, 2, 3]), num_attention_heads=heads, tie_word_embeddings=rng.random() < .7, **more)


def gpt2(rng):
    heads = rng.choice([2, 3, 4])
    return dict(n_embd=heads * 8, n_layer=rng.choice([1, 2, 3]), n_head=heads, n_positions=64, n_inner=rng.choice([None, 24]), layer_norm_epsilon=rng.choice([1e-5, 1e-3]),
                activation_function=rng.choice(['gelu', 'gelu_new', 'gelu_pytorch_tanh']), tie_word_embeddings=rng.random() < .7, max_position_embeddings=ABSENT)


def neo(rng):
    c = plain(rng, window_size=rng.choice([2, 5, 9]), layer_norm_epsilon=rng.choice([1e-5, 1e-3]), activation_function=rng.choice(['gelu', 'gelu_new']), intermediate_size=rng.choice([None, 24]))
    layers = c.pop('num_hidden_layers')
    return dict(c, num_layers=layers, num_heads=c.pop('num_attention_heads'), attention_types=rng.choice([[[['global'], layers]], [[['local'], layers]], [[['local'], 1], [['global'], layers - 1]]]))


def neox(rng):
    c = plain(rng, intermediate_size=rng.choice([24, 40]), layer_norm_eps=rng.choice([1e-5, 1e-3]), hidden_act=rng.choice(['gelu', 'gelu_new']), use_parallel_residual=rng.random() < .6,
              attention_bias=rng.random() < .7)
    return dict(c, **({'rope_parameters': {'rope_type': 'default', 'rope_theta': 1e4, 'partial_rotary_factor': rng.choice([.25, .5, 1.0])}} if rng.random() < .7 else {}))


def bloom(rng):
    c = plain(rng, layer_norm_epsilon=rng.choice([1e-5, 1e-3]))
    return dict(c, n_layer=c.pop('num_hidden_layers'), n_head=c.pop('num_attention_heads'), tie_word_embeddings=True, max_position_embeddings=ABSENT)


def falcon(rng):
    """As 7B, as 40B, and one sublayer after the other with ALiBi or RoPE, as RW."""
    kind = rng.choice([dict(multi_query=True), dict(new_decoder_architecture=True), dict(new_decoder_architecture=True, num_ln_in_parallel_attn=1), dict(multi_query=False, parallel_attn=False),
                       dict(multi_query=False, parallel_attn=False, alibi=True)])
    c = plain(rng, layer_norm_epsilon=rng.choice([1e-5, 1e-3]), ffn_hidden_size=rng.choice([24, 40]), bias=rng.random() < .5, **kind)
    return dict(c, **({'num_kv_heads': divisor(rng, c['num_attention_heads'])} if 'new_decoder_architecture' in kind else {}))


def opt(rng):
    c = plain(rng, ffn_dim=rng.choice([24, 40]), do_layer_norm_before=rng.random() < .6)
    return dict(c, word_embed_proj_dim=c['hidden_size'])


SHAPES = {
    'bloom': bloom,
    'cohere': cohere,
    'deepseek_v2': deepseek2,
    'deepseek_v3': deepseek3,
    'ernie4_5': lambda rng: dict(wide(rng, dense(rng)), use_bias=rng.random() < .4, **rope(rng)),
    'exaone4': exaone4,
    'falcon': falcon,
    'gemma2': gemma2,
    'gemma3_text': gemma3,
    'gemma4_text': gemma4,
    'gemma4_small': gemma4_small,
    'gemma4_experts': gemma4_experts,
    'glm4_moe': glm4_experts,
    'glm4_moe_lite': glm4_lite,
    'gpt2': gpt2,
    'gpt_neo': neo,
    'gpt_neox': neox,
    'gpt_oss': gpt_oss,
    'granite': granite_dense,
    'granitemoehybrid': granite,
    'granite4_experts': granite_experts,
    'hunyuan_v1_dense': hunyuan,
    'kimi_k2': deepseek3,
    'lfm2': lfm2,
    'llama': llama,
    'llama4_text': llama4,
    'mamba2': mamba2,
    'minimax_m2': minimax,
    'ministral3': ministral3,
    'mistral': mistral,
    'mixtral': mixtral,
    'nemotron_h': nemotron,
    'nemotron3_experts': nemotron_experts,
    'olmo2': lambda rng: dense(rng, **rope(rng)),
    'olmo3': olmo3,
    'olmoe': olmoe,
    'opt': opt,
    'phi3': phi3,
    'qwen2': qwen2,
    'qwen2_moe': qwen2_experts,
    'qwen3': qwen,
    'qwen3_moe': lambda rng: qwen_experts(rng, True),
    'qwen3_5_text': lambda rng: dict(delta(rng), intermediate_size=rng.choice([24, 40])),
    'qwen3_5_moe_text': lambda rng: dict(delta(rng), **experts(rng)),
    'qwen3_next': lambda rng: dict(delta(rng), intermediate_size=24, **experts(rng)),
    'seed_oss': seed_oss,
    'smollm3': smollm3,
    'starcoder2': starcoder2,
}


def settings(family, rng):
    """A config.json, and the settings of transformers' class."""
    c = {'model_type': family, 'vocab_size': VOCAB, 'max_position_embeddings': 64, 'pad_token_id': None, **SHAPES[family](rng)}
    c = {name: value for name, value in c.items() if value is not ABSENT}
    return c, dict(c, model_type={'kimi_k2': 'deepseek_v3'}.get(family, c['model_type']))


def randomize(model, rng):
    """Weights as large as trained ones; norms and biases that are ones and zeros would hide."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith('A_log'):
                p.copy_(torch.empty_like(p).uniform_(.2, 8).log())
            elif name.endswith('dt_bias'):
                p.copy_(torch.randn_like(p))
            elif p.dim() == 1:
                p.add_(.3 * torch.randn_like(p))
            elif 'conv' in name:
                p.copy_(.5 * torch.randn_like(p))
            elif name.endswith(('gate.weight', 'router.weight')):
                p.copy_(torch.randn_like(p))
            else:
                p.copy_(torch.randn_like(p) * (.6 if 'embed' in name else 1 / math.sqrt(p.shape[-1])))
        for name, b in model.named_buffers():
            if name.endswith('layer_scalar'):
                b.fill_(.5 + rng.random())
            if name.endswith('e_score_correction_bias'):
                b.copy_(.1 * torch.randn_like(b))

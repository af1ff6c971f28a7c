"""Random tiny models of each family, made by transformers, as cases of `monotron verify case`: logits,
losses, every gradient, three steps of AdamW and two greedy texts, computed in float64 from f32 weights.
A tolerance is ten times what transformers itself is off in float32.

usage: training.py BIN WORK COUNT SEED [FAMILY...]
"""
import copy, json, math, os, random, shutil, subprocess, sys
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)
VOCAB, ROWS, LENGTH, STEPS = 64, 3, 20, 3
F32, FLOAT = torch.float32, torch.Tensor.float


def f64(on):
    """What the classes compute in float32 on purpose is float64 meanwhile; files are read and written without."""
    torch.float32 = torch.float = torch.float64 if on else F32
    torch.Tensor.float = torch.Tensor.double if on else FLOAT


# ---- shapes

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
    shared = min(shared, layers - 2)
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


SHAPES = {
    'qwen3_next': lambda rng: dict(delta(rng), intermediate_size=24, **experts(rng)),
    'qwen3_5_text': lambda rng: dict(delta(rng), intermediate_size=rng.choice([24, 40])),
    'qwen3_5_moe_text': lambda rng: dict(delta(rng), **experts(rng)),
    'lfm2': lfm2,
    'granitemoehybrid': granite,
    'granite4_experts': granite_experts,
    'mamba2': mamba2,
    'nemotron_h': nemotron,
    'nemotron3_experts': nemotron_experts,
    'gemma4_text': gemma4,
    'gemma4_small': gemma4_small,
    'gemma4_experts': gemma4_experts,
    'ministral3': ministral3,
}


# ---- a case

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


def tables(model):
    """Rotary tables in float64."""
    for m in model.modules():
        if hasattr(m, 'rope_init_fns'):
            for kind in m.layer_types:
                setattr(m, kind + '_inv_freq', m.rope_init_fns[kind](m.config.per_layer_config[kind], None, layer_type=kind)[0].double())
        elif hasattr(m, 'original_inv_freq'):
            make = m.compute_default_rope_parameters if m.rope_type == 'default' else ROPE_INIT_FUNCTIONS[m.rope_type]
            m.inv_freq = make(m.config)[0].double()


def stored(model, values, folder):
    """Values by the names of parameters, as a file would name them."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for name, p in twin.named_parameters():
            p.copy_(values[name]) if name in values else p.zero_()
    f64(False)
    twin.save_pretrained(folder)
    named = load_file(folder + '/model.safetensors')
    f64(True)
    shutil.rmtree(folder)
    return {name: v for name, v in named.items() if not name.endswith(('layer_scalar', 'e_score_correction_bias'))}


def greedy(model, rng):
    texts = []
    for n in (3, 13):
        prompt, ids, probs, gap = [rng.randrange(VOCAB) for _ in range(n)], [], [], 9.0
        for _ in range(24):
            with torch.no_grad():
                logits = model(torch.tensor([prompt + ids]), use_cache=False).logits[0, -1].double()
            best = logits.topk(2).values
            gap = min(gap, (best[0] - best[1]).item())
            ids.append(logits.argmax().item())
            probs.append(logits.log_softmax(0)[ids[-1]].item())
        if gap > 1e-3:
            texts.append(dict(prompt_ids=prompt, ids=ids, log_probs=probs))
    return texts


LR, DECAY = .002, .1


def train(model, tokens, labels):
    """Logits, losses and gradients of the first batch, and the curve of all steps."""
    params = dict(model.named_parameters())
    plain = [p for p in params.values() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{'params': [p for p in params.values() if p.dim() > 1], 'weight_decay': DECAY}, {'params': plain, 'weight_decay': 0.0}], lr=LR, betas=(.9, .95), eps=1e-5)
    curve, first = [], None
    for step in range(STEPS):
        optimizer.zero_grad()
        logits = model(tokens[step], use_cache=False).logits
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[step].flatten(), reduction='none').view(ROWS, LENGTH)
        losses.mean().backward()
        grads = {name: p.grad for name, p in params.items() if p.grad is not None}
        norm = math.sqrt(sum((g.double() ** 2).sum().item() for g in grads.values()))
        first = first or (logits.detach(), losses.detach(), {name: g.clone() for name, g in grads.items()})
        curve.append(dict(iteration=step + 1, loss=losses.mean().item(), grad_norm=norm, lr_used=LR, lr_printed=LR))
        if norm > 1:
            for g in grads.values():
                g.mul_(1 / (norm + 1e-6))
        optimizer.step()
    return *first, curve


def deviation(want, got):
    """How far float32 is from float64: a number for each tolerance."""
    far = lambda a, b: (a - b.double()).abs().max().item()
    points = list(zip(want[3], got[3]))
    return dict(token_loss_abs=far(want[1], got[1]), logits_abs=far(want[0], got[0]), hidden_abs=0,
                gradient_rel_to_tensor_norm=max(far(g, got[2][n]) / max(g.norm().item(), 1e-30) for n, g in want[2].items()),
                curve_loss_abs=max(abs(a['loss'] - b['loss']) for a, b in points), curve_grad_norm_rel=max(abs(a['grad_norm'] / b['grad_norm'] - 1) for a, b in points), learning_rate_rel=0)


LEAST = dict(token_loss_abs=5e-5, logits_abs=1e-4, hidden_abs=1e-4, gradient_rel_to_tensor_norm=2e-5, curve_loss_abs=1e-5, curve_grad_norm_rel=1e-4, learning_rate_rel=1e-12)


def make(folder, family, seed):
    """Writes the case; returns how near the nearest tie of a router's choice is, 0 where rounding decides the curve."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    f64(False)
    c = dict({'model_type': family, **SHAPES[family](rng)}, vocab_size=VOCAB, max_position_embeddings=64, pad_token_id=None)
    mixed = any(c.get(name) for name in ('num_experts', 'num_local_experts', 'n_routed_experts'))
    eager = {'attn_implementation': 'eager', **({'experts_implementation': 'eager'} if mixed else {})}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**c), **eager)
    randomize(model, rng)
    model.tie_weights()
    model.save_pretrained(folder)
    os.replace(folder + '/model.safetensors', folder + '/weights.safetensors')
    tokens, labels = (torch.randint(0, VOCAB, (STEPS, ROWS, LENGTH)) for _ in range(2))
    save_file({'tokens': tokens.int(), 'labels': labels.int(), 'loss_mask': torch.ones(STEPS, ROWS, LENGTH)}, folder + '/batches.safetensors')
    single = copy.deepcopy(model).eval()
    f64(True)
    model = model.double().eval()
    tables(model)
    texts, ties = greedy(model, rng), [9.0]

    def tie(router, _, out):
        scores, bias = out[0].detach(), getattr(router, 'e_score_correction_bias', None)
        best = (scores if bias is None else scores.sigmoid() + bias).topk(c.get('num_experts_per_tok', c.get('top_k_experts')) + 1, dim=-1).values
        ties.append((best[..., -2] - best[..., -1]).min().item())

    for m in model.modules():
        if type(m).__name__.endswith(('TopKRouter', 'TopkRouter', 'TextRouter')):
            m.register_forward_hook(tie)
    other = copy.deepcopy(model)
    with torch.no_grad():  # weights that float32 takes for the same
        for p in other.parameters():
            p.mul_(1 + 6e-8 * (2 * torch.rand_like(p) - 1))
    logits, losses, grads, curve = train(model, tokens, labels)
    moved = deviation((logits, losses, grads, curve), train(other, tokens, labels))
    expected = {'logits': logits, 'token_loss': losses, **{'grad.' + n: g for n, g in stored(model, grads, folder + '/grads').items()}}
    f64(False)
    off = deviation((logits, losses, grads, curve), train(single, tokens, labels))
    save_file({name: v.detach().clone().contiguous() for name, v in expected.items()}, folder + '/expected.safetensors')
    case = dict(name=family, architecture=c['model_type'], config=c, weights='weights.safetensors',
                training=dict(train_iters=STEPS, lr=LR, min_lr=LR, lr_decay_style='constant', lr_decay_iters=STEPS, lr_warmup_iters=0, lr_warmup_init=0.0, weight_decay=DECAY, adam_beta1=.9, adam_beta2=.95,
                              adam_eps=1e-5, clip_grad=1.0, global_batch_size=ROWS, micro_batch_size=ROWS, seq_length=LENGTH, no_weight_decay='one dimension'),
                expected=dict(loss=curve[0]['loss'], grad_norm=curve[0]['grad_norm'], curve=curve, generation=texts),
                tolerance={name: max(least, 10 * off[name]) for name, least in LEAST.items()})
    json.dump(case, open(folder + '/case.json', 'w'), indent=1)
    tolerance = case['tolerance']
    return 0 if any(x > tolerance[name] / 2 for name, x in moved.items()) else min(ties)  # what a rounding of the weights decides says nothing


def main():
    binary, work, count, seed = sys.argv[1] + '/monotron', sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    failed = 0
    for family in sys.argv[5:] or SHAPES:
        worst, passed = (0.0, ''), 0
        for n in range(seed, seed + count):
            folder = f'{work}/{family}-{n}'
            again = 0
            while make(folder, family, n + again) < 5e-4:  # another expert by rounding is another model
                shutil.rmtree(folder)
                again += 1000
            r = subprocess.run([binary, 'verify', 'case', folder, '--device', os.environ.get('DEVICE', 'cpu'), '--json'], capture_output=True, text=True)
            if r.returncode:
                failed += 1
                print('FAIL', folder, r.stderr.strip() or r.stdout[-300:], flush=True)
                continue
            passed += 1
            for check in json.loads(r.stdout)['checks']:
                if check['tolerance'] > 0:
                    worst = max(worst, (check['error'] / check['tolerance'], check['name']))
            shutil.rmtree(folder)
        print(f'{family}: {count} models, {passed} agree (worst {worst[0]:.2f} of its tolerance: {worst[1]})', flush=True)
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()

"""Random models of each family, made by transformers: our logits are theirs; and
what we write of them (by way of our own format, with --verify) gives transformers
the same logits again. Configs leave out keys at random, so that defaults count.

usage: families.py BIN WORK COUNT SEED [FAMILY...]
"""
import collections, json, os, random, shutil, subprocess, sys, warnings
warnings.filterwarnings('ignore')
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

binary, work, count, seed = sys.argv[1] + '/monotron', sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
rng = random.Random(seed)
torch.manual_seed(seed)
VOCAB = 67


def rope(c):
    parameters = {'rope_type': 'default', 'rope_theta': rng.choice([1e4, 5e5, 1e6])}
    kind = rng.choice(['default', 'default', 'linear', 'llama3'])
    if kind == 'linear':
        parameters.update(rope_type=kind, factor=rng.choice([2.0, 4.0]))
    if kind == 'llama3':
        parameters.update(rope_type=kind, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
    if kind == 'default' and rng.random() < 0.4:
        parameters['partial_rotary_factor'] = rng.choice([0.25, 0.5, 1.0])
    c['rope_parameters'] = parameters
    if rng.random() < 0.3:
        del c['rope_parameters']


def llama_like(family):
    heads = rng.choice([2, 4, 6])
    c = dict(model_type=family, vocab_size=VOCAB, hidden_size=heads * 8, intermediate_size=rng.choice([24, 56]), num_hidden_layers=rng.choice([1, 3]),
             num_attention_heads=heads, num_key_value_heads=rng.choice([h for h in (1, 2, 3, heads) if heads % h == 0]), max_position_embeddings=64,
             tie_word_embeddings=rng.random() < 0.5, initializer_range=0.2, rms_norm_eps=rng.choice([1e-5, 1e-6, 1e-2]))
    if rng.random() < 0.5:
        c['head_dim'] = rng.choice([4, 8, 12])
    rope(c)
    if family in ('phi3', 'smollm3'):
        c['pad_token_id'] = None  # theirs are beyond this vocabulary
    if family == 'phi3':
        c.pop('head_dim', None)  # its checks take the width of heads that divide the width
        c['rope_parameters'] = {'rope_type': 'default', 'rope_theta': 1e4, 'partial_rotary_factor': rng.choice([0.5, 1.0, 0.75])}
    if family == 'starcoder2':
        c['norm_epsilon'] = c.pop('rms_norm_eps')
        c.update(use_bias=rng.random() < 0.7, hidden_act=rng.choice(['gelu', 'gelu_pytorch_tanh']))
    if family == 'smollm3':
        if rng.random() < 0.5:
            c['no_rope_layers'] = [rng.choice([0, 1]) for _ in range(c['num_hidden_layers'])]
        elif rng.random() < 0.5:
            c['no_rope_layer_interval'] = rng.choice([1, 2, 3])
        if rng.random() < 0.5:
            c.update(use_sliding_window=rng.random() < 0.8, sliding_window=rng.choice([3, 7]))
    if family in ('llama', 'smollm3'):
        bias = rng.random() < 0.4
        c.update(attention_bias=bias, mlp_bias=bias)
    if family in ('mistral', 'mixtral', 'phi3', 'starcoder2') and rng.random() < 0.6:
        c['sliding_window'] = rng.choice([None, 1, 5])
    if family == 'mixtral':
        c.update(num_local_experts=4, num_experts_per_tok=2)
    if family in MIXTURES:
        experts(c, family)
    if family == 'olmo2':
        c.pop('head_dim', None)  # its class has none; heads that divide the width alone
    if family in ('qwen2', 'qwen3'):
        c.pop('head_dim', None) if family == 'qwen2' else None
        if rng.random() < 0.6:
            c.update(use_sliding_window=True, sliding_window=rng.choice([3, 7]), max_window_layers=rng.choice([0, 1, 2, 5]))
            if rng.random() < 0.4:
                c['layer_types'] = [rng.choice(['full_attention', 'sliding_attention']) for _ in range(c['num_hidden_layers'])]
    for key in ('tie_word_embeddings', 'rms_norm_eps'):
        if rng.random() < 0.2:
            c.pop(key, None)
    return c


MIXTURES = ('qwen2_moe', 'qwen3_moe', 'olmoe', 'glm4_moe')


def experts(c, family):
    layers = c['num_hidden_layers']
    if family == 'glm4_moe':  # groups are scored by their two best experts
        groups = rng.choice([(1, 1), (1, 1), (4, 1), (2, 2)])
        c.update(n_routed_experts=8, num_experts_per_tok=2 * groups[1] if groups[0] > 1 else rng.choice([2, 3]), n_group=groups[0], topk_group=groups[1],
                 moe_intermediate_size=12, n_shared_experts=rng.choice([1, 2]), first_k_dense_replace=rng.randrange(layers), num_nextn_predict_layers=0,
                 routed_scaling_factor=rng.choice([1.0, 2.5]), use_qk_norm=rng.random() < 0.5, attention_bias=rng.random() < 0.5)
        return
    c.update(num_experts=rng.choice([4, 7]), num_experts_per_tok=rng.choice([1, 2, 3]), norm_topk_prob=rng.random() < 0.5)
    if family == 'olmoe':
        c.pop('head_dim', None)  # heads that divide the width alone
        return
    c.update(moe_intermediate_size=rng.choice([8, 20]), decoder_sparse_step=rng.choice([1, 1, 2]) if layers > 1 else 1)
    if layers > 1 and c['decoder_sparse_step'] == 1 and rng.random() < 0.5:
        c['mlp_only_layers'] = rng.sample(range(layers), rng.choice([1, 2]))
    if family == 'qwen2_moe':
        c.update(shared_expert_intermediate_size=rng.choice([8, 24]), qkv_bias=rng.random() < 0.7)
    if rng.random() < 0.5:
        c.update(use_sliding_window=rng.random() < 0.8, sliding_window=rng.choice([3, 7]))
        if family == 'qwen2_moe':
            c.update(max_window_layers=rng.choice([0, 1, 2, 5]))
            if c['use_sliding_window'] and rng.random() < 0.4:
                c['layer_types'] = [rng.choice(['full_attention', 'sliding_attention']) for _ in range(layers)]


def plain(family):
    heads = rng.choice([1, 2, 4, 3])
    c = dict(model_type=family, vocab_size=VOCAB, n_layer=rng.choice([1, 3]), n_head=heads, layer_norm_epsilon=rng.choice([1e-5, 1e-3]), initializer_range=0.2)
    if family == 'gpt2':
        c.update(n_embd=heads * 8, n_positions=40, activation_function=rng.choice(['gelu', 'gelu_new', 'gelu_pytorch_tanh']), n_inner=rng.choice([None, 24]),
                 tie_word_embeddings=rng.random() < 0.7)
    else:
        c.update(hidden_size=heads * 8)
    return c


def neox():
    heads = rng.choice([1, 2, 4, 3])
    c = dict(model_type='gpt_neox', vocab_size=VOCAB, num_hidden_layers=rng.choice([1, 3]), num_attention_heads=heads, hidden_size=heads * 8, intermediate_size=rng.choice([24, 40]),
             layer_norm_eps=rng.choice([1e-5, 1e-3]), initializer_range=0.2, max_position_embeddings=64, hidden_act=rng.choice(['gelu', 'gelu_new']),
             use_parallel_residual=rng.random() < 0.6, tie_word_embeddings=rng.random() < 0.3)
    if rng.random() < 0.7:
        c.update(rotary_pct=rng.choice([0.25, 0.5, 1.0]), rotary_emb_base=rng.choice([1e4, 5e5]))
    return c


def neo():
    heads, layers = rng.choice([1, 2, 4, 3]), rng.choice([1, 2, 4])
    types = rng.choice([[[['global'], layers]], [[['local'], layers]], [[['global', 'local'], layers // 2]] + [[['local'], 1]] * (layers % 2)])
    c = dict(model_type='gpt_neo', vocab_size=VOCAB, num_layers=layers, num_heads=heads, hidden_size=heads * 8, attention_types=types,
             max_position_embeddings=40, layer_norm_epsilon=rng.choice([1e-5, 1e-3]), initializer_range=0.2, tie_word_embeddings=rng.random() < 0.7,
             activation_function=rng.choice(['gelu', 'gelu_new']), intermediate_size=rng.choice([None, 24]))
    if rng.random() < 0.8:
        c['window_size'] = rng.choice([1, 2, 5, 9])
    return c


def nemotron():
    heads, layers, scans = rng.choice([2, 4, 6]), rng.choice([2, 4, 5]), rng.choice([2, 4, 6])
    kinds = [rng.choice(['linear_attention', 'linear_attention', 'full_attention', 'mlp', 'moe']) for _ in range(layers)]
    kinds[rng.randrange(layers)] = 'full_attention'  # without one transformers' caches fail
    c = dict(model_type='nemotron_h', vocab_size=VOCAB, hidden_size=heads * 8, intermediate_size=rng.choice([24, 56]), num_attention_heads=heads, head_dim=rng.choice([4, 8, 12]),
             num_key_value_heads=rng.choice([h for h in (1, 2, 3, heads) if heads % h == 0]), max_position_embeddings=64, initializer_range=0.2, mamba_num_heads=scans, mamba_head_dim=rng.choice([3, 8]),
             n_groups=rng.choice([g for g in (1, 2, scans) if scans % g == 0]), ssm_state_size=rng.choice([4, 16]), moe_intermediate_size=12, moe_shared_expert_intermediate_size=rng.choice([8, 24]),
             pad_token_id=None, num_hidden_layers=layers, time_step_min=1e-9)  # to which its class raises time steps, and Nvidia's code does not
    if rng.random() < 0.4:
        c['hybrid_override_pattern'] = ''.join({'linear_attention': 'M', 'full_attention': '*', 'mlp': '-', 'moe': 'E'}[kind] for kind in kinds)
    else:
        c['layers_block_type'] = kinds
    if rng.random() < 0.5:
        c.update(conv_kernel=rng.choice([2, 3]), use_conv_bias=rng.random() < 0.5, layer_norm_epsilon=1e-2, chunk_size=16)
    if rng.random() < 0.5:
        c.update(n_routed_experts=6, num_experts_per_tok=rng.choice([2, 3]), routed_scaling_factor=2.5)
    return c


def logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float()


def ours(folder, ids):
    r = subprocess.run([binary, 'logits', '--load', folder, '--json', '--prompt-ids', *map(str, ids)], capture_output=True, text=True)
    if r.returncode:
        return None, r.stderr.strip()
    return torch.tensor([json.loads(l)['logits'] for l in r.stdout.splitlines()]), ''


def convert(source, target, *flags):
    r = subprocess.run([binary, 'convert', '--input', source, '--output', target, *flags], capture_output=True, text=True)
    return r.returncode, r.stderr.strip()


def randomize(model):
    """Biases and norms that are zeros and ones would hide; routers that are as good as even
    would choose by rounding."""
    for p in model.parameters():
        if p.dim() == 1:
            p.data += 0.3 * torch.randn_like(p)
    for name, b in list(model.named_buffers()) + list(model.named_parameters()):
        if name.endswith('e_score_correction_bias'):
            b.data += 0.1 * torch.randn_like(b)
        if name.endswith(('mlp.gate.weight', 'mixer.gate.weight')):
            b.data *= 5


def case(folder, family):
    c = neo() if family == 'gpt_neo' else nemotron() if family == 'nemotron_h' else neox() if family == 'gpt_neox' else plain(family) if family in ('gpt2', 'bloom') else llama_like(family)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**c), attn_implementation='eager').eval().float()
    randomize(model)
    model.save_pretrained(f'{folder}/theirs')
    if rng.random() < 0.6:  # as given: what transformers wrote names every key
        json.dump(c, open(f'{folder}/theirs/config.json', 'w'))
    model = AutoModelForCausalLM.from_pretrained(f'{folder}/theirs', attn_implementation='eager', dtype=torch.float32).eval()
    ids = [rng.randrange(VOCAB) for _ in range(rng.randint(9, 33))]
    want = logits(model, ids)
    got, says = ours(f'{folder}/theirs', ids)
    if got is None:
        return 'refused: ' + says.split(': ', 1)[-1][:120], c, 0
    read = (got - want).abs().max().item()
    code, says = convert(f'{folder}/theirs', f'{folder}/native', '--to', 'native')
    if code == 0:
        code, says = convert(f'{folder}/native', f'{folder}/back', '--to', 'hf', '--verify')
    if code:
        return f'convert: {says[-200:]}', c, 0
    again = AutoModelForCausalLM.from_pretrained(f'{folder}/back', attn_implementation='eager', dtype=torch.float32).eval()
    written = (logits(again, ids) - want).abs().max().item()
    scale = max(1.0, want.abs().max().item())
    worst = max(read / scale, written / scale)
    return ('ok' if worst < 2e-5 else f'read off by {read:.1e}, written by {written:.1e}'), c, worst


failed = 0
for family in sys.argv[5:] or ('gpt2', 'gpt_neo', 'gpt_neox', 'bloom', 'phi3', 'smollm3', 'starcoder2', 'llama', 'mistral', 'mixtral', 'olmo2', 'qwen2', 'qwen3', 'nemotron_h', *MIXTURES):
    seen, worst = collections.Counter(), 0.0
    for n in range(count):
        folder = f'{work}/families'
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        verdict, c, off = case(folder, family)
        seen[verdict] += 1
        worst = max(worst, off)
        if verdict != 'ok' and not verdict.startswith('refused'):
            failed += 1
            print('FAIL', verdict, json.dumps(c), flush=True)
    print(f"{'ok  ' if set(seen) == {'ok'} else '    '} {family}: {count} models, {seen['ok']} equal (worst {worst:.0e} of the largest logit)", {k: v for k, v in seen.items() if k != 'ok'} or '', flush=True)
sys.exit(1 if failed else 0)

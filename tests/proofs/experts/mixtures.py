"""Small mixtures of experts of transformers beside ours: logits, greedy ids, files written
back, twelve steps of training, also with the balancing loss that transformers computes.

usage: mixtures.py BIN WORK SEED [SHAPE...]
"""
import json, os, random, shutil, subprocess, sys
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

binary, work, seed = os.path.abspath(sys.argv[1]), sys.argv[2] + '/mixture', int(sys.argv[3])
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(2)
VOCAB, SEQ, BATCH, MICRO, STEPS = 96, 24, 8, 2, 12
LR, DECAY, BETAS, EPS = 2e-3, 0.1, (0.9, 0.95), 1e-8

COMMON = dict(vocab_size=VOCAB, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
              intermediate_size=40, num_experts_per_tok=2, initializer_range=0.1, tie_word_embeddings=False)
# A family's model_type, and what follows it: another shape of it.
SHAPES = {
    'mixtral': dict(num_local_experts=4),
    'qwen2_moe': dict(num_experts=6, moe_intermediate_size=20, shared_expert_intermediate_size=28, mlp_only_layers=[1]),
    'qwen3_moe': dict(num_experts=8, moe_intermediate_size=20, norm_topk_prob=True, head_dim=16),
    'olmoe': dict(num_experts=8, num_experts_per_tok=3, pad_token_id=None),  # transformers trains no row of padding
    'glm4_moe': dict(n_routed_experts=8, moe_intermediate_size=20, n_shared_experts=2, n_group=4, topk_group=1, routed_scaling_factor=2.5, use_qk_norm=True,
                     attention_bias=True, num_nextn_predict_layers=0),
    'deepseek_v2': dict(n_routed_experts=8, moe_intermediate_size=20, n_shared_experts=2, topk_method='greedy', routed_scaling_factor=1.5, first_k_dense_replace=1),
    'deepseek_v3': dict(n_routed_experts=8, moe_intermediate_size=20, n_shared_experts=1, n_group=4, topk_group=1, routed_scaling_factor=2.5, first_k_dense_replace=1),
    'mixtral, 3 of 6': dict(num_local_experts=6, num_experts_per_tok=3, tie_word_embeddings=True, sliding_window=11),
    'qwen2_moe, 4 of 10': dict(num_experts=10, num_experts_per_tok=4, moe_intermediate_size=12, shared_expert_intermediate_size=20, norm_topk_prob=True, decoder_sparse_step=2,
                               num_key_value_heads=4, qkv_bias=False),
    'qwen3_moe, 1 of 6': dict(num_experts=6, num_experts_per_tok=1, moe_intermediate_size=32, norm_topk_prob=False, num_key_value_heads=1, tie_word_embeddings=True),
    'qwen3_moe, 8 of 32': dict(num_experts=32, num_experts_per_tok=8, moe_intermediate_size=8, norm_topk_prob=False, mlp_only_layers=[0, 2], num_hidden_layers=4),
    'olmoe, weights of sum 1': dict(num_experts=16, num_experts_per_tok=4, norm_topk_prob=True, num_key_value_heads=4, pad_token_id=None),
    'glm4_moe, 3 of 6': dict(n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=16, n_shared_experts=1, first_k_dense_replace=2),
    'deepseek_v2, groups': dict(n_routed_experts=12, num_experts_per_tok=3, moe_intermediate_size=12, n_shared_experts=1, topk_method='group_limited_greedy', n_group=6,
                                topk_group=3, routed_scaling_factor=2.0),
    'deepseek_v3, 4 of 12': dict(n_routed_experts=12, num_experts_per_tok=4, moe_intermediate_size=12, n_shared_experts=2, n_group=3, topk_group=2, routed_scaling_factor=1.0,
                                 first_k_dense_replace=2),
}
# Of one mixture each, with all samples in one micro-batch: transformers pools the layers of a loss, and knows no
# micro-batches. Its loss is --moe-router-topk times Megatron's.
BALANCED = {
    'mixtral': dict(num_local_experts=4, num_hidden_layers=1),
    'qwen2_moe': dict(num_experts=6, moe_intermediate_size=20, shared_expert_intermediate_size=28, mlp_only_layers=[0, 2], num_experts_per_tok=3),
    'qwen3_moe': dict(num_experts=8, moe_intermediate_size=20, norm_topk_prob=True, head_dim=16, decoder_sparse_step=2),
    'olmoe': dict(num_experts=8, num_experts_per_tok=4, num_hidden_layers=1, pad_token_id=None),
}
COEFFICIENT = 0.1
# ranks of one process, and what they share
LAYOUTS = {
    'one rank': [],
    'ep 2': ['--world-size', '2', '--expert-model-parallel-size', '2', '--moe-token-dispatcher-type', 'alltoall'],
    'tp 2, ep 2, pp 1, dp 2': ['--world-size', '4', '--tensor-model-parallel-size', '2', '--sequence-parallel', '--expert-model-parallel-size', '2', '--use-distributed-optimizer'],
}


BALANCED_LAYOUTS = {
    'one rank': [],
    'tp 2': ['--world-size', '2', '--tensor-model-parallel-size', '2', '--sequence-parallel'],
    'tp 2, ep 2, etp 1': ['--world-size', '2', '--tensor-model-parallel-size', '2', '--sequence-parallel', '--expert-model-parallel-size', '2', '--expert-tensor-parallel-size', '1',
                          '--moe-token-dispatcher-type', 'alltoall'],
}


def llama_attention(model, config):
    """Attention as DeepSeek's own code has it without latent vectors: Llama's."""
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding
    plain = transformers.LlamaConfig(**{k: v for k, v in COMMON.items() if k != 'num_experts_per_tok'}, rope_parameters=config.rope_parameters, attn_implementation='eager')
    for i, layer in enumerate(model.model.layers):
        layer.self_attn = LlamaAttention(plain, i)
        for p in layer.self_attn.parameters():
            torch.nn.init.normal_(p, std=0.1)
    model.model.rotary_emb = LlamaRotaryEmbedding(plain)


def made(family, shape, folder):
    """The model, and its folder as transformers writes it."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(family, **{**COMMON, **shape})
    model = AutoModelForCausalLM.from_config(config, attn_implementation='eager').eval().float()
    if family.startswith('deepseek'):
        llama_attention(model, config)
    for p in model.parameters():
        if p.dim() == 1:  # norms and biases that are ones and zeros would hide
            p.data += 0.3 * torch.randn_like(p)
    for name, t in list(model.named_parameters()) + list(model.named_buffers()):
        if name.endswith('mlp.gate.weight'):  # choices that hang on no rounding
            t.data *= 4
        if name.endswith('e_score_correction_bias'):
            t.data += 0.1 * torch.randn_like(t)
    model.save_pretrained(folder)
    if family.startswith('deepseek'):
        c = json.load(open(f'{folder}/config.json'))
        c.update(use_mla=False, kv_lora_rank=None, head_dim=None)
        json.dump(c, open(f'{folder}/config.json', 'w'))
    return model


def run(*words):
    r = subprocess.run([binary + '/' + words[0], *map(str, words[1:])], capture_output=True, text=True)
    if r.returncode:
        raise SystemExit(f'FAILED: {" ".join(map(str, words))}\n{r.stderr[-2000:]}')
    return r.stdout


def logits(model, rng):
    worst = 0.0
    for length in (1, 7, 40):
        ids = [rng.randrange(VOCAB) for _ in range(length)]
        with torch.no_grad():
            want = model(torch.tensor([ids])).logits[0]
        out = run('monotron', 'logits', '--load', f'{work}/theirs', '--json', '--prompt-ids', *ids)
        got = torch.tensor([json.loads(l)['logits'] for l in out.splitlines()])
        worst = max(worst, ((got - want).abs().max() / want.abs().max()).item())
    return worst


def greedy(model, rng):
    """Prompts whose greedy ids are equal, of how many."""
    equal = 0
    for length in (1, 3, 9, 17):
        ids = [rng.randrange(VOCAB) for _ in range(length)]
        want = list(ids)
        with torch.no_grad():
            while len(want) < length + 24:
                want.append(model(torch.tensor([want])).logits[0, -1].argmax().item())
        for more in ([], ['--tensor-model-parallel-size', '2']):
            out = json.loads(run('monotron', 'generate', '--load', f'{work}/theirs', '--json', '--max-length', length + 24, '--num-beams', 1, '--stop-token', 'none',
                                 *more, '--prompt-ids', *ids))
            equal += ids + out['ids'] == want
    return equal, 8


def back(family, model, rng):
    """What we write of it, by way of ours: every tensor's bits, and transformers' logits of it."""
    run('monotron', 'convert', '--input', f'{work}/theirs', '--output', f'{work}/native', '--to', 'native')
    run('monotron', 'convert', '--input', f'{work}/native', '--output', f'{work}/mcore', '--to', 'torch_dist', '--verify')
    run('monotron', 'convert', '--input', f'{work}/mcore', '--output', f'{work}/back', '--to', 'hf', '--verify')
    ours, theirs = load_file(f'{work}/back/model.safetensors'), load_file(f'{work}/theirs/model.safetensors')
    same = ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in theirs)
    again = AutoModelForCausalLM.from_pretrained(f'{work}/back', attn_implementation='eager', dtype=torch.float32).eval()
    ids = torch.tensor([[rng.randrange(VOCAB) for _ in range(33)]])
    with torch.no_grad():
        return same and torch.equal(again(ids).logits, model(ids).logits), len(theirs)


def corpus(rng):
    """Documents in which much follows from what went before."""
    with open(f'{work}/text.jsonl', 'w') as f:
        for _ in range(60):
            ids, at = [], rng.randrange(VOCAB)
            for _ in range(rng.randrange(20, 120)):
                at = (7 * at + 3) % (VOCAB - 1) if rng.random() < 0.8 else rng.randrange(VOCAB - 1)
                ids.append(at)
            f.write(json.dumps({'text': ' '.join(map(str, ids))}) + '\n')
    run('preprocess_data', '--input', f'{work}/text.jsonl', '--output-prefix', f'{work}/text', '--tokenizer-type', 'NullTokenizer', '--vocab-size', VOCAB, '--append-eod')


def batches():
    out = run('monotron', 'inspect', 'samples', '--data-path', f'{work}/text_text_document', '--split', '100,0,0', '--seq-length', SEQ, '--train-samples', BATCH * STEPS,
              '--first', 0, '--count', BATCH * STEPS, '--tokenizer-type', 'NullTokenizer', '--vocab-size', VOCAB)
    rows = [json.loads(l) for l in out.splitlines()]
    tokens, labels = (torch.tensor([r[k] for r in rows]) for k in ('tokens', 'labels'))
    return zip(tokens.split(BATCH), labels.split(BATCH))


def theirs(model, coefficient=0):
    """Loss, gradient norm and balancing loss of each step of torch's loop."""
    model.train()
    ps = [p for p in model.parameters()]
    optimizer = torch.optim.AdamW([{'params': [p for p in ps if p.dim() > 1], 'weight_decay': DECAY}, {'params': [p for p in ps if p.dim() == 1], 'weight_decay': 0.0}],
                                  lr=LR, betas=BETAS, eps=EPS)
    curve = []
    for tokens, labels in batches():
        out = model(tokens, output_router_logits=True) if coefficient else model(tokens)
        loss, balance = torch.nn.functional.cross_entropy(out.logits.view(-1, VOCAB), labels.reshape(-1)), out.aux_loss if coefficient else torch.tensor(0.0)
        optimizer.zero_grad()
        (loss + coefficient * balance).backward()
        norm = torch.nn.utils.clip_grad_norm_(ps, 1.0)
        optimizer.step()
        curve.append((loss.item(), norm.item(), balance.item()))
    return curve


def ours(layout, micro=MICRO, coefficient=0):
    """The same of our run."""
    log = f'{work}/log.jsonl'
    if os.path.exists(log):
        os.remove(log)
    run('pretrain_gpt', '--load', f'{work}/theirs', '--use-checkpoint-args', '--finetune', '--data-path', f'{work}/text_text_document', '--split', '100,0,0',
        '--tokenizer-type', 'NullTokenizer', '--vocab-size', VOCAB, '--make-vocab-size-divisible-by', 1, '--seq-length', SEQ, '--max-position-embeddings', 64,
        '--micro-batch-size', micro, '--global-batch-size', BATCH, '--train-iters', STEPS, '--lr', LR, '--lr-decay-style', 'constant', '--weight-decay', DECAY,
        '--adam-beta1', BETAS[0], '--adam-beta2', BETAS[1], '--adam-eps', EPS, '--clip-grad', 1.0, '--hidden-dropout', 0, '--attention-dropout', 0,
        '--moe-router-bias-update-rate', 0, '--moe-aux-loss-coeff', coefficient, '--eval-iters', 0, '--log-interval', 1, '--log-jsonl', log, *layout)
    lines = [json.loads(l) for l in open(log)]
    return [(l['loss']['lm loss'], l['grad_norm'], l['balancing_loss']['load_balancing_loss'] if coefficient else 0) for l in lines if 'validation' not in l]


def apart(got, want, i):
    """The largest relative difference of the i-th numbers of two curves."""
    return max(abs(a[i] - b[i]) / max(abs(b[i]), 1e-9) for a, b in zip(got, want, strict=True))


class Verdicts:
    def __init__(self):
        self.texts, self.failed = [], 0

    def say(self, ok, text):
        self.failed += not ok
        self.texts.append(('' if ok else 'FAILED ') + text)


def fresh():
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    rng = random.Random(seed)
    corpus(rng)
    return rng


def compared(name):
    """A shape: logits, texts, files, training without a balancing loss."""
    family, rng, v = name.split(',')[0], fresh(), Verdicts()
    model, say = made(family, SHAPES[name], f'{work}/theirs'), v.say
    off = logits(model, rng)
    say(off < 1e-5, f'logits within {off:.0e} of the largest')
    equal, of = greedy(model, rng)
    say(equal == of, f'{equal} of {of} greedy texts equal')
    if not family.startswith('deepseek'):
        same, tensors = back(family, model, rng)
        say(same, f'{tensors} tensors written back bit for bit')
    want = theirs(model)
    for layout, flags in LAYOUTS.items():
        got = ours(flags)
        worst = [apart(got, want, i) for i in (0, 1)]
        say(len(got) == STEPS and worst[0] < 1e-5 and worst[1] < 1e-4, f'{layout}: {len(got)} steps, losses within {worst[0]:.0e}, gradient norms within {worst[1]:.0e}')
    print(f'{name}: ' + '; '.join(v.texts) + f' (loss {want[0][0]:.4f} to {want[-1][0]:.4f})', flush=True)
    return v.failed


def balanced(family):
    """Training with the loss that balances experts."""
    fresh()
    v, shape = Verdicts(), BALANCED[family]
    k = shape.get('num_experts_per_tok', COMMON['num_experts_per_tok'])
    without, want = (theirs(made(family, shape, f'{work}/theirs'), c) for c in (0, COEFFICIENT))
    v.say(apart(without, want, 1) > 1e-2, 'the balancing loss matters')
    for layout, flags in BALANCED_LAYOUTS.items():
        got = [(loss, norm, k * balance) for loss, norm, balance in ours(flags, BATCH, k * COEFFICIENT)]
        worst = [apart(got, want, i) for i in range(3)]
        v.say(len(got) == STEPS and worst[0] < 1e-5 and worst[1] < 1e-4 and worst[2] < 1e-5,
              f'{layout}: {len(got)} steps, losses within {worst[0]:.0e}, gradient norms within {worst[1]:.0e}, balancing losses within {worst[2]:.0e}')
    print(f'{family}, balanced: ' + '; '.join(v.texts) + f' (balancing loss {want[0][2]:.4f} to {want[-1][2]:.4f})', flush=True)
    return v.failed


asked = sys.argv[4:]
failed = sum(compared(name) for name in SHAPES if not asked or name.split(',')[0] in asked)
failed += sum(balanced(family) for family in BALANCED if not asked or family in asked)
sys.exit(1 if failed else 0)

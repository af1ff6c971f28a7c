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
import shapes
from shapes import SHAPES, VOCAB, randomize

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)
ROWS, LENGTH, STEPS = 3, 20, 3
F32, FLOAT = torch.float32, torch.Tensor.float


def f64(on):
    """What the classes compute in float32 on purpose is float64 meanwhile; files are read and written without."""
    torch.float32 = torch.float = torch.float64 if on else F32
    torch.Tensor.float = torch.Tensor.double if on else FLOAT


# ---- a case

def tables(model):
    """Rotary tables in float64."""
    for m in model.modules():
        if hasattr(m, 'rope_init_fns'):
            for kind in m.layer_types:
                setattr(m, kind + '_inv_freq', m.rope_init_fns[kind](m.config.per_layer_config[kind], None, layer_type=kind)[0].double())
        elif hasattr(m, 'original_inv_freq'):
            make = getattr(m, f'compute_{m.rope_type}_rope_parameters', None) or ROPE_INIT_FUNCTIONS[m.rope_type]
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
    plain = {name: p for name, p in params.items() if p.dim() == 1 or name.endswith('bias')}  # those of experts are stacked
    optimizer = torch.optim.AdamW([{'params': [p for name, p in params.items() if name not in plain], 'weight_decay': DECAY}, {'params': list(plain.values()), 'weight_decay': 0.0}],
                                  lr=LR, betas=(.9, .95), eps=1e-5)
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
    c, settings = shapes.settings(family, rng)
    mixed = any(c.get(name) for name in ('num_experts', 'num_local_experts', 'n_routed_experts'))
    eager = {'attn_implementation': 'sdpa' if family == 'falcon' else 'eager', **({'experts_implementation': 'eager'} if mixed else {})}  # eager Falcon adds ALiBi twice
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**settings), **eager)
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

    def tie(router, given, out):
        scores, bias = out[0].detach(), given[1] if len(given) > 1 else getattr(router, 'e_score_correction_bias', None)
        best = (scores if bias is None else scores.sigmoid() + bias).topk(c.get('num_experts_per_tok', c.get('top_k_experts')) + 1, dim=-1).values
        ties.append((best[..., -2] - best[..., -1]).min().item())

    for m in model.modules():
        if type(m).__name__.endswith(('TopKRouter', 'TopkRouter', 'TextRouter')):
            m.register_forward_hook(tie)
    others = [copy.deepcopy(model) for _ in range(4)]
    with torch.no_grad():  # weights that float32 takes for the same
        for p in (p for other in others for p in other.parameters()):
            p.mul_(1 + 1.2e-7 * (2 * torch.rand_like(p) - 1))
    logits, losses, grads, curve = train(model, tokens, labels)
    moves = [deviation((logits, losses, grads, curve), train(other, tokens, labels)) for other in others]
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
    return 0 if any(x > tolerance[name] / 4 for moved in moves for name, x in moved.items()) else min(ties)  # what a rounding of the weights decides says nothing


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

"""Random tiny models of each family, saved by transformers, go HF -> native -> HF, HF -> torch -> HF and HF ->
torch_dist -> HF. Half of their configs leave out keys, so that defaults count.

usage: trips.py BIN WORK COUNT SEED [FAMILY...]
"""
import collections, json, random, shutil, subprocess, sys
import torch
import transformers
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM
import shapes
from shapes import SHAPES, VOCAB, randomize

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)
CLOSE = 2e-5  # of the largest logit; both compute in f32


class Wrong(Exception):
    pass


def run(*arguments):
    r = subprocess.run([sys.argv[1] + '/monotron', *arguments], capture_output=True, text=True)
    if r.returncode:
        raise Wrong(f"{arguments[0]}: {r.stderr.strip()[-300:]}")
    return r.stdout


def tensors(folder):
    """Type, shape and bytes of each tensor by name."""
    with safe_open(folder + '/model.safetensors', 'pt') as f:
        return {name: (t.dtype, t.shape, t.contiguous().flatten().view(torch.uint8)) for name in f.keys() for t in [f.get_tensor(name)]}


def logits(folder, ids):
    mixed = any(key in settings(folder) for key in ('num_experts', 'num_local_experts', 'n_routed_experts'))
    kinds = {'attn_implementation': 'sdpa' if 'falcon' in folder else 'eager', **({'experts_implementation': 'eager'} if mixed else {})}  # eager Falcon adds ALiBi twice
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True, **kinds)
    wrong = {kind: names for kind, names in info.items() if names}
    if wrong:
        raise Wrong(f'{folder}: transformers says {wrong}')
    with torch.no_grad():
        return model.eval()(torch.tensor([ids]), use_cache=False).logits[0]


def settings(folder):
    return AutoConfig.from_pretrained(folder).to_dict()


SIZES = ('vocab_size', 'max_position_embeddings', 'hidden_size', 'num_hidden_layers', 'tie_word_embeddings')
# Kinds of which we keep neither the size of a scan's chunks nor which of two formulas of tanh GELU is used: both only round.
ROUNDED = ('gpt2', 'starcoder2', 'mamba2', 'granitemoehybrid', 'granite4_experts', 'nemotron_h', 'nemotron3_experts')


def made(folder, family, seed):
    """Saves a model of the family; returns the generator of the seed, which has drawn it."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    c, more = shapes.settings(family, rng)
    dropped = [k for k, v in c.items() if isinstance(v, (bool, float, dict)) and k != 'time_step_min' and rng.random() < .2]  # Nemotron-H's is to be its time_step_limit's
    for key in dropped:
        del c[key], more[key]
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**more))
    randomize(model, rng)
    model.tie_weights()
    model.to(rng.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16]))
    for name, b in model.named_buffers():
        if name.endswith('e_score_correction_bias'):  # which loading keeps in f32
            b.data = b.float()
    model.save_pretrained(folder)
    if rng.random() < .5:  # as given: what transformers wrote names every key
        json.dump(c, open(folder + '/config.json', 'w'))
    return rng


def computes(folder, what, family, want, ids, before):
    """Fails unless transformers computes the same with a folder; the chosen family may compute in another order."""
    sizes = settings(folder)
    if any(before.get(k) != sizes.get(k) for k in SIZES):
        raise Wrong(f'{what}: settings differ: {[(k, before.get(k), sizes.get(k)) for k in SIZES]}')
    off = ((want - logits(folder, ids)).abs().max() / want.abs().max().clamp(min=1)).item()
    if off > (CLOSE if family in ROUNDED or sizes['model_type'] != before['model_type'] else 0):
        raise Wrong(f'{what}: logits by transformers differ by {off:.1e}')


def trips(folder, family, seed):
    """Ours from transformers' logits, relative to the largest; the formats that were refused, by reason."""
    rng = made(folder + '/theirs', family, seed)
    ids = [rng.randrange(VOCAB) for _ in range(rng.randint(9, 33))]
    want, stored, now = logits(folder + '/theirs', ids), tensors(folder + '/theirs'), settings(folder + '/theirs')
    got = torch.tensor([json.loads(l)['logits'] for l in run('logits', '--load', folder + '/theirs', '--json', '--prompt-ids', *map(str, ids)).splitlines()])
    off = ((got - want).abs().max() / want.abs().max().clamp(min=1)).item()
    if off > CLOSE:
        raise Wrong(f'our logits are off by {off:.1e} of the largest')
    heads = next(now[name] for name in ('num_attention_heads', 'n_head', 'num_heads') if name in now)
    refused = []
    for form in ('native', 'torch', 'torch_dist'):
        cuts = [] if form == 'native' else ['--tensor-model-parallel-size', str(rng.choice([n for n in (1, 2) if heads % n == 0]))]
        try:
            run('convert', '--input', folder + '/theirs', '--to', form, '--output', f'{folder}/{form}', '--verify', *cuts)
        except Wrong as e:
            if form == 'native' or "Megatron's formats cannot store" not in str(e) and 'torch_dist stores a parameter of all layers' not in str(e):
                raise
            refused.append(f"{form}: {str(e).removeprefix('convert: monotron: ').split('; ')[0]}")
            continue
        back = f'{folder}/{form}-back'
        run('convert', '--input', f'{folder}/{form}', '--to', 'hf', '--family', now['model_type'], '--output', back)
        again = tensors(back)
        lost = [name for name in stored.keys() | again.keys() if not (name in stored and name in again and stored[name][:2] == again[name][:2] and torch.equal(stored[name][2], again[name][2]))]
        if lost:
            raise Wrong(f'{form}: tensors differ: {sorted(lost)[:4]}')
        computes(back, form, family, want, ids, now)
    run('convert', '--input', folder + '/native', '--to', 'hf', '--output', folder + '/natural')
    computes(folder + '/natural', 'the family that was chosen', family, want, ids, now)
    return off, refused


def main():
    work, count, seed = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    failed = 0
    for family in sys.argv[5:] or sorted(SHAPES.keys() - {'kimi_k2'}):  # which transformers reads as deepseek_v3 alone
        worst, passed, refused = 0.0, 0, collections.Counter()
        for n in range(seed, seed + count):
            folder = f'{work}/{family}-{n}'
            try:
                off, reasons = trips(folder, family, n)
            except (Wrong, RuntimeError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as e:
                failed += 1
                print('FAIL', folder, e, flush=True)
                continue
            passed, worst = passed + 1, max(worst, off)
            refused.update(reasons)
            shutil.rmtree(folder)
        print(f'{family}: {count} models, {passed} equal (our logits off by {worst:.0e})', dict(refused) or '', flush=True)
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()

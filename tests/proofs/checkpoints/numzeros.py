"""Why "num zeros" of pretrain-gpt2 is no number to meet.

Megatron counts the gradient elements that are exactly 0. The key biases' exact
gradient is 0 (softmax does not change when one number is added to all scores of a
query), so what is counted is how often rounding leaves nothing of it. Here PyTorch
continues Megatron's checkpoint in f32 and f64: losses and norms are Megatron's
printed digits each time, every zero is a key bias's, and how many there are changes
with the number of threads and the order of one sum.

usage: numzeros.py GOLDEN_MODELS MONOTRON
"""
import glob, json, math, pickle, re, subprocess, sys, types
import torch
import torch.nn.functional as F

golden, monotron = sys.argv[1:]
case = f'{golden}/pretrain-gpt2'
LAYERS, H, HEADS, D, SEQ = 2, 32, 4, 8, 32
FLAGS = '--split 80,15,5 --seed 77 --seq-length 32 --train-samples 40 --valid-samples 24 --test-samples 8 --eod-mask-loss ' \
        '--tokenizer-type NullTokenizer --vocab-size 100 --first 16 --count 24'


def ours(*args):
    return subprocess.run([monotron, *args], capture_output=True, text=True, check=True).stdout


class Inert(dict):
    """Stands for every class of the file that is no tensor's."""
    def __init__(self, *_): pass
    def __setstate__(self, _): pass


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        known = module.split('.')[0] in ('torch', 'collections', 'numpy') or module == '_codecs'
        return super().find_class(module, name) if known else Inert


reader = types.SimpleNamespace(Unpickler=Unpickler, load=pickle.load, __name__='pickle')
saved = torch.load(glob.glob(f'{case}/checkpoint/iter_*/mp_rank_00/model_optim_rng.pt')[0], weights_only=False, pickle_module=reader)
weights = {n: x for n, x in saved['model'].items() if torch.is_tensor(x)}
names = list(weights)
state = saved['optimizer']['state']  # numbered: what decays first
numbered = [n for n in names if weights[n].dim() > 1] + [n for n in names if weights[n].dim() == 1]
moments = [{n: state[i][k] for i, n in enumerate(numbered)} for k in ('exp_avg', 'exp_avg_sq')]
samples = [json.loads(l) for l in ours('inspect', 'samples', '--data-path', f'{case}/corpus', *FLAGS.split()).splitlines()]
log = json.load(open(f'{case}/case.json'))
printed = [l for l in log['log_of_the_resumed_run'] if ' iteration ' in l and 'lm loss:' in l]
said = {f: [float(re.search(f + r':\s*([-+0-9.eE]+)', l)[1]) for l in printed] for f in ('lm loss', 'grad norm', 'num zeros', 'learning rate')}
whole = [l for l in log['log_of_the_whole_run'] if 'learning rate' in l]
rates = [float(re.search(r'learning rate:\s*([-+0-9.eE]+)', whole[3])[1])] + said['learning rate'][:-1]  # printed is the next one's


class Linear(torch.autograd.Function):
    """Megatron's: the bias gradient is the sum over rows."""
    order = 'rows'

    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return torch.matmul(x, w.t()) + b

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        rows, inputs = g.reshape(-1, g.shape[-1]), x.reshape(-1, x.shape[-1])
        down = {'rows': lambda: rows.sum(0), 'reversed': lambda: rows.flip(0).sum(0), 'columns': lambda: rows.t().contiguous().sum(1),
                'matrix product': lambda: torch.ones(1, len(rows), dtype=g.dtype).matmul(rows)[0],
                'in f64': lambda: rows.double().sum(0).to(g.dtype)}[Linear.order]()
        return g.matmul(w), rows.t().matmul(inputs), down


def forward(w, tokens):
    def norm(x, name):
        return F.layer_norm(x, (H,), w[name + '.weight'], w[name + '.bias'], 1e-5)

    def linear(x, name):
        return Linear.apply(x, w[name + '.weight'], w[name + '.bias'])
    x = (w['embedding.word_embeddings.weight'][tokens] + w['embedding.position_embeddings.weight']).transpose(0, 1)
    later = torch.triu(torch.ones(SEQ, SEQ, dtype=torch.bool), 1)
    for i in range(LAYERS):
        p = f'decoder.layers.{i}.'
        q, k, v = linear(norm(x, p + 'input_layernorm'), p + 'self_attention.linear_qkv').view(SEQ, -1, HEADS, 3 * D).permute(1, 2, 0, 3).split(D, -1)
        scores = (q @ k.transpose(2, 3) / math.sqrt(D)).masked_fill(later, -10000.0)
        x = x + linear((scores.softmax(-1) @ v).permute(2, 0, 1, 3).reshape(SEQ, -1, H), p + 'self_attention.linear_proj')
        y = F.gelu(linear(norm(x, p + 'pre_mlp_layernorm'), p + 'mlp.linear_fc1'), approximate='tanh')
        x = x + linear(y, p + 'mlp.linear_fc2')
    return norm(x, 'decoder.final_layernorm') @ w['embedding.word_embeddings.weight'].t()


def micro(w, rows):
    """Σ loss·mask and Σ mask of a micro-batch."""
    tokens, labels, mask = (torch.tensor([r[k] for r in rows]) for k in ('tokens', 'labels', 'loss_mask'))
    logits = forward(w, tokens).transpose(0, 1)
    loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), reduction='none')
    return (loss * mask.reshape(-1)).sum(), mask.sum()


def train(dtype, threads, order):
    """Continues for six iterations; zeros of each, whether all are key biases, and what differs from the printed lines."""
    torch.set_num_threads(threads)
    Linear.order = order
    w, m, v = ({n: part[n].to(dtype).clone() for n in names} for part in (weights, *moments))
    counts, elsewhere, unlike = [], 0, []
    for it in range(len(printed)):
        for x in w.values():
            x.requires_grad_().grad = None
        total = tokens = 0
        for at in (4 * it, 4 * it + 2):
            loss, n = micro(w, samples[at:at + 2])
            (loss / n / 2).backward()
            total, tokens = total + loss.item(), tokens + n.item()
        norm = math.sqrt(sum((x.grad.double() ** 2).sum().item() for x in w.values()))
        zeros = [(n, i[0]) for n in names for i in (w[n].grad == 0).nonzero().tolist()]
        counts.append(len(zeros))
        elsewhere += sum(not (n.endswith('linear_qkv.bias') and i % (3 * D) // D == 1) for n, i in zeros)
        alone = said['lm loss'][it] if it != 1 else 2 * said['lm loss'][1] - said['lm loss'][0]  # the second line is a mean
        if abs(total / tokens - alone) > 3e-6 or abs(norm - said['grad norm'][it]) > 6e-4:
            unlike.append(5 + it)
        step, clip = 5 + it, min(1.0, 1.0 / (norm + 1e-6))
        for n in names:
            x, g = w[n].detach(), w[n].grad * clip
            m[n].mul_(.9).add_(g, alpha=.1)
            v[n].mul_(.95).addcmul_(g, g, value=.05)
            x.mul_(1 - rates[it] * 0.1 * (x.dim() > 1))
            w[n] = x.addcdiv_(m[n] / (1 - .9 ** step), (v[n] / (1 - .95 ** step)).sqrt() + 1e-8, value=-rates[it])
    return counts, elsewhere, unlike


print(f"num zeros that Megatron printed, iterations 5 to 10: {[int(x) for x in said['num zeros']]}")
seen, bad = set(), 0
for dtype in (torch.float32, torch.float64):
    for order in ('rows', 'reversed', 'columns', 'matrix product', 'in f64'):
        for threads in (1, 2):
            counts, elsewhere, unlike = train(dtype, threads, order)
            seen.add(tuple(counts))
            bad += elsewhere + len(unlike)
            print(f"{str(dtype)[6:]} bias sum {order + ',':15s} {threads} threads: {counts}, {elsewhere} not key biases; "
                  f"losses and gradient norms {'differ at ' + str(unlike) if unlike else 'as printed'}")
print(f'{len(seen)} different answers of one program, {bad} faults')
sys.exit(0 if len(seen) > 1 and not bad else 1)

"""A run trained here and saved for Megatron goes on under torch's own AdamW, which
stands in there where neither Transformer Engine nor Apex is installed: the
optimizer's state passes megatron-core's load_state_dict and AdamW's, a step is
made, and it is the fourth.

usage: adam.py GOLDEN_MODELS BIN WORK
"""
import glob, os, subprocess, sys, warnings
warnings.filterwarnings('ignore')
import torch

golden, binaries, work = sys.argv[1:]
torch.distributed.init_process_group('gloo', init_method=f'file://{work}/adam-rendezvous', rank=0, world_size=1)
from megatron.core import dist_checkpointing
from megatron.core.optimizer.optimizer import FP32Optimizer

BETAS, EPS, RATE = (0.9, 0.95), 1e-8, 3e-3


def trained(name, flags):
    """Three steps here; the iteration's folder."""
    save = os.path.join(work, 'adam-' + name.replace(' ', '-'))
    r = subprocess.run([f'{binaries}/pretrain_gpt', *f'''--num-layers 2 --hidden-size 32 --num-attention-heads 4 --max-position-embeddings 32
        --seq-length 32 --micro-batch-size 1 --global-batch-size 4 --train-iters 3 --lr {RATE} --adam-beta2 {BETAS[1]} --tokenizer-type NullTokenizer --vocab-size 100
        --split 80,15,5 --eval-iters 0 --data-path {golden}/pretrain-gpt2/corpus --data-cache-path {work}/cache --save {save} --save-interval 3 {flags}'''.split()],
                       capture_output=True, text=True)
    if r.returncode:
        sys.exit(r.stderr)
    return glob.glob(f'{save}/iter_*')[0]


def from_torch(folder):
    """The dictionary that Megatron hands to its optimizer."""
    return torch.load(f'{folder}/mp_rank_00/model_optim_rng.pt', weights_only=False)['optimizer']


def from_dist(folder):
    """The same out of a sharded checkpoint: what dist_checkpointing calls common, and tensors by number."""
    from torch.distributed.checkpoint import FileSystemReader, load
    common = dist_checkpointing.load_common_state_dict(folder)['optimizer']
    inner = common.get('optimizer', common)
    meta = FileSystemReader(folder).read_metadata().state_dict_metadata
    keys = [k for k in meta if k.startswith('optimizer.state.')]
    tensors = {k: torch.empty(meta[k].size, dtype=meta[k].properties.dtype) for k in keys}
    load(tensors, storage_reader=FileSystemReader(folder), no_dist=True)
    names = sorted({k.split('.', 3)[3] for k in keys})
    for i, name in enumerate(names):
        inner['state'][i] = {kind: tensors[f'optimizer.state.{kind}.{name}'] for kind in ('exp_avg', 'exp_avg_sq')}
    inner['param_groups'] = inner['param_groups'][:1]
    inner['param_groups'][0]['params'] = list(range(len(names)))
    return common


def goes_on(state):
    """Loads state and steps with gradients of 1; the largest difference from AdamW's formula at the fourth step."""
    inner = state.get('optimizer', state)
    groups = inner['param_groups']
    moments = {i: (s['exp_avg'].clone(), s['exp_avg_sq'].clone()) for i, s in inner['state'].items() if isinstance(i, int)}
    params = {i: torch.nn.Parameter(torch.zeros_like(m)) for i, (m, _) in moments.items()}
    decay = ('weight_decay', 'wd_mult', 'lr_mult', 'max_lr', 'min_lr', 'is_expert_parallel', 'is_decoupled_lr', 'default_config')
    adam = torch.optim.AdamW([{'params': [params[i] for i in g['params']], **{k: g[k] for k in decay}} for g in groups], lr=RATE, betas=BETAS, eps=EPS)
    wrapped = object.__new__(FP32Optimizer)  # its constructor puts a scale on a GPU
    wrapped.optimizer, wrapped.is_stub_optimizer = adam, False
    wrapped.load_state_dict(inner)
    for p in params.values():
        p.grad = torch.ones_like(p)
    rates = {id(p): g['lr'] for g in adam.param_groups for p in g['params']}
    adam.step()
    worst = 0.0
    for i, (m, v) in moments.items():
        p = params[i]
        if adam.state[p]['step'].item() != 4:
            sys.exit(f'parameter {i}: step {adam.state[p]["step"]}')
        m, v = BETAS[0] * m + (1 - BETAS[0]), BETAS[1] * v + (1 - BETAS[1])
        want = -rates[id(p)] * (m / (1 - BETAS[0] ** 4)) / ((v / (1 - BETAS[1] ** 4)).sqrt() + EPS)
        worst = max(worst, ((p.detach() - want).abs() / rates[id(p)]).max().item())
    return worst, len(moments)


failed = 0
for name, flags, read in (('torch', '--ckpt-format torch', from_torch), ('torch bf16', '--ckpt-format torch --bf16', from_torch),
                          ('torch_dist', '--ckpt-format torch_dist', from_dist), ('torch_dist bf16', '--ckpt-format torch_dist --bf16', from_dist)):
    try:
        worst, count = goes_on(read(trained(name, flags)))
        told, good = f'{count} parameters, the fourth step is AdamW\'s to {worst:.0e}', worst < 1e-5 and count > 10
    except KeyError as err:
        told, good = f'KeyError: {err}', False
    failed += not good
    print(f"{'ok  ' if good else 'FAIL'} {name}: {told}")
sys.exit(1 if failed else 0)

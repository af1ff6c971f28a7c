"""Reads monotron's checkpoints with the programs that they are for.

usage: peers.py GOLDEN MONOTRON WORK
"""
import glob, json, os, subprocess, sys
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging

golden, monotron, work = sys.argv[1:]
cases = f'{golden}/checkpoint'
logging.set_verbosity_error()
logging.disable_progress_bar()
failed = 0


def check(name, ok, said):
    global failed
    failed += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {name}: {said}")


def convert(source, to, name, *more):
    out = os.path.join(work, name)
    r = subprocess.run([monotron, 'convert', '--input', source, '--to', to, '--output', out, *more], capture_output=True, text=True)
    if r.returncode:
        check(name, False, r.stderr.strip()[-200:])
        return None
    return out


def logits(folder, prompt):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.tensor([prompt])).logits[0].double()


def hugging_face():
    """Every case to a Hugging Face folder: transformers' logits within the case's tolerance."""
    for path in sorted(glob.glob(f'{cases}/*/case.json')):
        folder, c = os.path.dirname(path), json.load(open(path))
        if 'expected' not in c or 'prompt' not in c:
            continue
        name = 'hf-' + os.path.basename(folder)
        out = convert(folder, 'hf', name, '--max-shard-size', '50KB')
        if out is None:
            continue
        worst = (logits(out, c['prompt']) - load_file(f'{folder}/expected.safetensors')['logits']).abs().max().item()
        check(name, worst <= c['expected']['tolerance_f32'], f"logits by transformers differ by {worst:.1e}")


def model_cases():
    """BLOOM and the Llama with scaled RoPE through Megatron's format and back: the case's own logits."""
    for name in ['bloom', 'llama-rope-scaled', 'llama-base-500k', 'qwen2']:
        source = os.path.join(work, 'source-' + name)
        os.makedirs(source)
        os.symlink(f'{golden}/model/{name}/weights.safetensors', f'{source}/model.safetensors')
        os.symlink(f'{golden}/model/{name}/config.json', f'{source}/config.json')
        there = convert(source, 'torch', 'torch-' + name, '--tensor-model-parallel-size', '2')
        back = there and convert(there, 'hf', 'back-' + name)
        if not back:
            continue
        prompt = list(range(1, 13))
        worst = (logits(back, prompt) - logits(source, prompt)).abs().max().item()
        check('back-' + name, worst == 0, f'logits by transformers, before and after, differ by {worst:g}')


def nanogpt():
    """ckpt.pt: weights_only reads it; the weights are the family's, wte and lm_head share memory, AdamW takes its state."""
    for case in ['gpt2-hf-f32', 'gpt2-nanogpt-compiled']:
        out = convert(f'{cases}/{case}', 'nanogpt', 'nano-' + case)
        c = torch.load(f'{out}/ckpt.pt', weights_only=True)
        w = c['model']
        want = load_file(f'{cases}/gpt2-hf-f32/model.safetensors')
        turned = ('attn.c_attn.weight', 'attn.c_proj.weight', 'mlp.c_fc.weight', 'mlp.c_proj.weight')
        same = all(torch.equal(w[k], v.t() if k.endswith(turned) else v) for k, v in want.items())
        tied = w['lm_head.weight'].data_ptr() == w['transformer.wte.weight'].data_ptr()
        params = [torch.nn.Parameter(v) for k, v in w.items() if k != 'lm_head.weight']
        adam = torch.optim.AdamW([{'params': [p for p in params if p.dim() >= 2]}, {'params': [p for p in params if p.dim() < 2]}])
        adam.load_state_dict(c['optimizer'])
        check('nanogpt ' + case, same and tied, f"weights {'equal' if same else 'differ'}, {'tied' if tied else 'not tied'}, AdamW has {len(adam.state)} states")


def megatron():
    """Megatron's files: weights_only reads them with the classes that Megatron itself allows; PyTorch reads torch_dist."""
    import argparse
    import numpy
    allowed = [argparse.Namespace, numpy._core.multiarray._reconstruct, numpy.ndarray, numpy.dtype, numpy.dtypes.UInt32DType]
    source = f'{cases}/gpt2-hf-f32'
    words = load_file(f'{source}/model.safetensors')['transformer.wte.weight']
    out = convert(source, 'torch', 'megatron', '--tensor-model-parallel-size', '2')
    parts = []
    for rank in ['mp_rank_00', 'mp_rank_01']:
        with torch.serialization.safe_globals(allowed):
            c = torch.load(glob.glob(f'{out}/*/{rank}/model_optim_rng.pt')[0], weights_only=True)
        parts.append(c['model']['embedding.word_embeddings.weight'])
    whole = torch.cat(parts)
    check('torch', torch.equal(whole[:len(words)], words), f"{c['args'].tensor_model_parallel_size} ranks, {len(whole)} rows for {len(words)} ids")

    from torch.distributed.checkpoint import FileSystemReader
    import torch.distributed.checkpoint as dcp
    out = convert(source, 'torch_dist', 'dist', '--tensor-model-parallel-size', '2', '--pipeline-model-parallel-size', '2')
    folder = glob.glob(f'{out}/iter_*')[0]
    reader = FileSystemReader(folder)
    sizes = {k: v.size for k, v in reader.read_metadata().state_dict_metadata.items() if hasattr(v, 'size')}
    state = {'embedding.word_embeddings.weight': torch.empty(sizes['embedding.word_embeddings.weight'])}
    dcp.load(state, storage_reader=reader, no_dist=True)
    check('torch_dist', torch.equal(state['embedding.word_embeddings.weight'][:len(words)], words), f'{len(sizes)} tensors by torch.distributed.checkpoint')


for step in [hugging_face, model_cases, nanogpt, megatron]:
    step()
print(f'{failed} failed')
sys.exit(1 if failed else 0)

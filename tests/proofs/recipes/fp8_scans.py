"""FP8 with a tensor's scale (Transformer Engine's Float8CurrentScaling) on the projections of state-space scans, written in torch
on transformers' Mamba2.

usage: fp8_scans.py WORK: WORK has the model in base, rows.jsonl, and the steps that we logged, eight.jsonl and plain.jsonl.
"""
import json
import sys

import torch
import transformers

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)


def rounded(x, kind):
    """Values of 8 bits whose scale is that of the largest magnitude of x."""
    scale = torch.finfo(kind).max / x.abs().max().float()
    return (x * scale).to(kind).float() / scale


class Product(torch.autograd.Function):
    """y = x·Wᵀ, dx = dy·W and dW = dyᵀ·x of operands of 8 bits: E4M3, of gradients E5M2."""

    @staticmethod
    def forward(ctx, x, w):
        x, w = rounded(x, torch.float8_e4m3fn), rounded(w, torch.float8_e4m3fn)
        ctx.save_for_backward(x, w)
        return x @ w.T

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dy = rounded(dy, torch.float8_e5m2)
        return dy @ w, dy.flatten(0, -2).T @ x.flatten(0, -2)


def measure(folder, rows, eight):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for name, module in model.named_modules():
        if eight and name.endswith(("in_proj", "out_proj")):
            module.forward = lambda x, m=module: Product.apply(x, m.weight)
    logits = model(rows[:, :-1], use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    return loss.item(), sum((p.grad ** 2).sum().item() for p in model.parameters()) ** 0.5


work, failed, numbers = sys.argv[1], False, []
rows = torch.tensor([json.loads(line)["input_ids"] for line in open(work + "/rows.jsonl")])
for eight in (True, False):
    step = next(s for s in map(json.loads, open(work + ("/eight.jsonl" if eight else "/plain.jsonl"))) if "grad_norm" in s)
    theirs, ours = measure(work + "/base", rows, eight), (step["lm_loss"] if "lm_loss" in step else step["loss"], step["grad_norm"])
    off = max(abs(a / b - 1) for a, b in zip(theirs, ours))
    failed |= off > 2e-6  # f32 sums in another order
    numbers.append(ours)
    print(f"{'FP8' if eight else 'f32'}: loss {ours[0]:.7f}, norm of the gradient {ours[1]:.7f}: off by {off:.0e} of torch's")
moved = min(abs(a / b - 1) for a, b in zip(*numbers))
print(f"FP8 moves them by {moved:.0e}")
sys.exit(failed or moved < 1e-3)

"""One GPT-2 training step in PyTorch on a CPU: the peer of `monotron bench`.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch
    /tmp/venv/bin/python bench/torch_gpt2.py --dtype bf16 --compile

Same step: forward, backward, clipping by 1, AdamW with weight decay 0.1 on
matrices, random tokens, no dropout, vocabulary padded to 50304, tied head. bf16 is
autocast over f32 parameters. Prints one JSON object.
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(h, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, s, h))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers=12, width=768, heads=12, vocabulary=50304, positions=1024):
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, labels):
        x = self.words(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.words.weight)
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), labels.reshape(-1))


def peak_memory():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--micro-batch-size", type=int, default=4)
    p.add_argument("--seq-length", type=int, default=512)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1234)
    model = GPT2()
    decayed = [p for p in model.parameters() if p.dim() == 2]
    plain = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
                                  lr=1e-4, betas=(0.9, 0.95), fused=True)
    forward = torch.compile(model) if a.compile else model
    times = []
    for n in range(a.steps + 2):  # two to warm up: compilation, then the allocator
        began = time.perf_counter()
        rows = torch.randint(50257, (a.micro_batch_size, a.seq_length + 1))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = forward(rows[:, :-1], rows[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss = loss.item()
        if n >= 2:
            times.append(time.perf_counter() - began)
    seconds = statistics.median(times)
    print(json.dumps({
        "torch": torch.__version__, "dtype": a.dtype, "compile": a.compile, "threads": a.threads, "step_seconds": seconds,
        "fastest_step_seconds": min(times), "tokens_per_second": a.micro_batch_size * a.seq_length / seconds,
        "peak_memory_bytes": peak_memory(), "loss": loss,
    }))


if __name__ == "__main__":
    main()

"""A GPT in PyTorch, in the shapes of GPT-2 and of Llama, and one training step of it, to measure
ours against: on a CPU by torch_step.py beside this file, on a GPU by scripts/cuda-torch.py.
Forward, backward, clipping by 1, AdamW with weight decay 0.1 on matrices; no dropout, tied head.
bf16 is autocast over f32 parameters.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads, flash):
        super().__init__()
        self.heads, self.flash = heads, flash
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(h, dim=2))
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(2, 3)) * (h // self.heads) ** -0.5
            hidden = torch.ones(s, s, dtype=torch.bool, device=x.device).triu(1)
            y = scores.masked_fill(hidden, float("-inf")).softmax(dim=3) @ v
        x = x + self.proj(y.transpose(1, 2).reshape(b, s, h))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, width, heads, vocabulary, positions, flash=True):
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads, flash) for _ in range(layers))
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


class LlamaBlock(nn.Module):
    def __init__(self, width, ffn, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate_up, self.down = nn.Linear(width, 2 * ffn, bias=False), nn.Linear(ffn, width, bias=False)

    def forward(self, x, cos, sin):
        b, s, h = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(h, dim=2))
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, s, h))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=2)
        return x + self.down(F.silu(gate) * up)


def rotate(x, cos, sin):
    """Positions into x [b, heads, s, c] as pairs of channels c / 2 apart; cos and sin [s, c / 2]."""
    a, b = x.chunk(2, dim=3)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=3).to(x.dtype)


class Llama(nn.Module):
    def __init__(self, layers, width, ffn, heads, vocabulary, positions):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, ffn, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        channels = width // heads
        angles = torch.outer(torch.arange(positions).float(), 10000.0 ** (-torch.arange(0, channels, 2) / channels))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, labels):
        x = self.words(ids)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, cos, sin)
        logits = F.linear(self.norm(x), self.words.weight)
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), labels.reshape(-1))


def adamw(model):
    matrices, others = [p for p in model.parameters() if p.dim() == 2], [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), fused=True)


def step(model, forward, optimizer, rows, bf16):
    """Trains on rows of ids [b, s + 1]; forward is the model, or what torch.compile made of it. The loss, on the host."""
    with torch.autocast(rows.device.type, dtype=torch.bfloat16, enabled=bf16):
        loss = forward(rows[:, :-1], rows[:, 1:])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()

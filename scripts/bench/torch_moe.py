"""One training step of a mixture of experts in plain PyTorch on a CPU: the peer of `monotron bench experts`.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch
    /tmp/venv/bin/python scripts/bench/torch_moe.py --experts 64 --topk 8 --ffn 768
    /tmp/venv/bin/python scripts/bench/torch_moe.py --experts 64 --topk 8 --ffn 768 --transformers

Layers of 768 with 12 heads, rotary positions, LayerNorm, gated experts with biases, aux loss,
vocabulary 1,024: the shapes of bench experts. Experts are a loop over modules, each with the
rows of its tokens. --experts 0 is the dense shape of 6,144. With --transformers it is that
library's own Mixtral (Llama where there are no experts), with its own choice of kernels: the same
sizes, RMSNorm, no biases. Prints one JSON object.
"""
import argparse
import json
import statistics
import time

from modules import need

need("torch")
import torch
import torch.nn.functional as F
from torch import nn


WIDTH, HEADS, VOCAB, DENSE, AUX = 768, 12, 1024, 6144, 0.01


class MLP(nn.Module):
    def __init__(self, h, ffn):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(h, 2 * ffn), nn.Linear(ffn, h)

    def forward(self, x):
        gate, up = self.fc1(x).chunk(2, -1)
        return self.fc2(F.silu(gate) * up)


class Mixture(nn.Module):
    def __init__(self, h, ffn, experts, topk):
        super().__init__()
        self.router, self.topk = nn.Linear(h, experts), topk
        self.experts = nn.ModuleList(MLP(h, ffn) for _ in range(experts))

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        logits = self.router(rows).float()
        top, chosen = logits.topk(self.topk, dim=-1)
        weights = top.softmax(-1)
        counts = torch.bincount(chosen.reshape(-1), minlength=len(self.experts))
        n = len(self.experts)
        self.loss = n / (self.topk * len(rows) ** 2) * (counts * logits.softmax(-1).sum(0)).sum()
        y = torch.zeros_like(rows)
        for i, expert in enumerate(self.experts):
            at, slot = (chosen == i).nonzero(as_tuple=True)
            y.index_add_(0, at, (expert(rows[at]) * weights[at, slot, None]).to(y.dtype))
        return y.reshape(x.shape)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Block(nn.Module):
    def __init__(self, h, heads, mlp):
        super().__init__()
        self.ln1, self.ln2, self.heads = nn.LayerNorm(h), nn.LayerNorm(h), heads
        self.qkv, self.proj, self.mlp = nn.Linear(h, 3 * h), nn.Linear(h, h), mlp

    def forward(self, x, cos, sin):
        b, s, h = x.shape
        q, k, v = (t.reshape(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(self.ln1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype), v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, s, h))
        return x + self.mlp(self.ln2(x))


class Plain(nn.Module):
    """GPT of Blocks: ids [b, s+1] -> loss."""

    def __init__(self, a):
        super().__init__()
        h, heads = WIDTH, HEADS
        self.words = nn.Embedding(VOCAB, h)
        self.blocks = nn.ModuleList(Block(h, heads, Mixture(h, a.ffn, a.experts, a.topk) if a.experts else MLP(h, DENSE)) for _ in range(a.layers))
        self.last = nn.LayerNorm(h)
        for w in [self.words.weight, *(p for p in self.blocks.parameters() if p.dim() == 2)]:
            nn.init.normal_(w, std=0.02)
        angles = torch.arange(a.seq_length)[:, None] * 10000 ** (-torch.arange(0, h // heads, 2) / (h // heads))
        self.cos, self.sin = angles.cos(), angles.sin()

    def forward(self, ids):
        x = self.words(ids[:, :-1])
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        loss = F.cross_entropy(F.linear(self.last(x), self.words.weight).float().reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
        for block in self.blocks:
            loss = loss + AUX * getattr(block.mlp, "loss", 0)
        return loss


class Theirs(nn.Module):
    """transformers' model of these sizes."""

    def __init__(self, a):
        super().__init__()
        need("transformers")
        import transformers

        sizes = dict(vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=a.ffn if a.experts else DENSE, num_hidden_layers=a.layers, num_attention_heads=HEADS,
                     num_key_value_heads=HEADS, max_position_embeddings=a.seq_length, tie_word_embeddings=True, use_cache=False)
        if a.experts:
            config = transformers.MixtralConfig(num_local_experts=a.experts, num_experts_per_tok=a.topk, output_router_logits=True, router_aux_loss_coef=AUX, **sizes)
            self.model = transformers.MixtralForCausalLM(config)
        else:
            self.model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
        self.model.train()
        self.kernels = f"transformers {transformers.__version__}" + (f", {self.model.config._experts_implementation}" if a.experts else "")

    def forward(self, ids):
        return self.model(input_ids=ids[:, :-1], labels=ids[:, :-1]).loss


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    for name, value in dict(experts=4, topk=2, ffn=3072, layers=2, micro_batch_size=4, seq_length=512, steps=3, threads=2).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--transformers", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1234)
    model = Theirs(a) if a.transformers else Plain(a)
    params = list(model.parameters())
    optimizer = torch.optim.AdamW(params, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    times = []
    for n in range(a.steps + 1):
        began = time.perf_counter()
        ids = torch.randint(VOCAB, (a.micro_batch_size, a.seq_length + 1))
        with torch.autocast("cpu", torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = model(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if n > 0:
            times.append(time.perf_counter() - began)
    seconds = statistics.median(times)
    print(json.dumps({"torch": torch.__version__, "kernels": getattr(model, "kernels", "a loop over experts"), "dtype": a.dtype, "experts": a.experts, "step_seconds": seconds,
                      "tokens_per_second": a.micro_batch_size * a.seq_length / seconds, "loss": loss.item()}))


if __name__ == "__main__":
    main()

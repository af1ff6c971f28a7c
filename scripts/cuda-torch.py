# PyTorch's speed at the shapes that BenchmarkOps times, on the same GPU: products and
# attention, bf16. Called by scripts/gpu.sh where python3 has torch with CUDA.
import sys

try:
    import torch
except ImportError:
    sys.exit("no torch here")
if not torch.cuda.is_available():
    sys.exit("torch sees no GPU")

BATCH, SEQ, HIDDEN, HEADS, CHANNELS, VOCAB, CHUNK = 4, 512, 768, 12, 64, 50304, 256
TOKENS = BATCH * SEQ


def seconds(call, repeat=50):
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeat):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3 / repeat


def show(name, took, flops=0, moved=0):
    print(f"{name:44} {took * 1e6:9.1f} us {flops / took / 1e9:10.0f} GFLOP/s {moved / took / 1e9:8.0f} GB/s")


def tensor(*shape, grad=False):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=grad)


print(torch.__version__, torch.cuda.get_device_name())
big = torch.empty(1 << 28, device="cuda", dtype=torch.float32)
other = torch.empty_like(big)
show("copy of 1 GiB", seconds(lambda: other.copy_(big)), moved=2 * big.numel() * 4)
del big, other
for m, n, k in [(TOKENS, 3 * HIDDEN, HIDDEN), (TOKENS, HIDDEN, HIDDEN), (TOKENS, 4 * HIDDEN, HIDDEN), (TOKENS, HIDDEN, 4 * HIDDEN), (CHUNK, VOCAB, HIDDEN)]:
    a, b = tensor(m, k), tensor(n, k)
    show(f"matmul {m}x{n}x{k} nt", seconds(lambda: a @ b.T), flops=2 * m * n * k)
q, k, v = (tensor(BATCH, HEADS, SEQ, CHANNELS, grad=True) for _ in range(3))
attention = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
flops = 4 * BATCH * HEADS * SEQ * SEQ / 2 * CHANNELS
show("attention forward", seconds(attention), flops=flops)
o = attention()
d = torch.randn_like(o)
show("attention backward", seconds(lambda: torch.autograd.grad(o, (q, k, v), d, retain_graph=True)), flops=2.5 * flops)
x = tensor(TOKENS, HIDDEN)
norm = torch.nn.LayerNorm(HIDDEN, device="cuda", dtype=torch.bfloat16)
show("layer norm forward", seconds(lambda: norm(x)), moved=2 * x.numel() * 2)
y = tensor(TOKENS, 4 * HIDDEN)
show("gelu (tanh) forward", seconds(lambda: torch.nn.functional.gelu(y, approximate="tanh")), moved=2 * y.numel() * 2)

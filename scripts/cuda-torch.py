# PyTorch on the same GPU: products, attention and norms at the shapes that BenchmarkOps
# times, then the training step at the shapes of `monotron bench ladder`, one means after
# the other. Each line is printed when it is known. Called by scripts/gpu.sh.
import os
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit("no torch here")
if not torch.cuda.is_available():
    sys.exit("torch sees no GPU")

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))  # in the pack it lies beside this file
from torch_gpt import GPT, adamw, step  # noqa: E402

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
    print(f"{name:44} {took * 1e6:9.1f} us {flops / took / 1e9:10.0f} GFLOP/s {moved / took / 1e9:8.0f} GB/s", flush=True)


def tensor(*shape, grad=False):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=grad)


def ops():
    big = torch.empty(1 << 28, device="cuda", dtype=torch.float32)
    other = torch.empty_like(big)
    show("copy of 1 GiB", seconds(lambda: other.copy_(big)), moved=2 * big.numel() * 4)  # noqa: F821, which does not know that del comes later
    del big, other
    a, b = tensor(8192, 8192), tensor(8192, 8192)
    show("matmul 8192x8192x8192 nt", seconds(lambda: a @ b.T, 20), flops=2 * 8192**3)
    for m, n, k in [(TOKENS, 3 * HIDDEN, HIDDEN), (TOKENS, HIDDEN, HIDDEN), (TOKENS, 4 * HIDDEN, HIDDEN), (TOKENS, HIDDEN, 4 * HIDDEN), (CHUNK, VOCAB, HIDDEN)]:
        a, b = tensor(m, k), tensor(n, k)
        show(f"matmul {m}x{n}x{k} nt", seconds(lambda: a @ b.T), flops=2 * m * n * k)
    q, k, v = (tensor(BATCH, HEADS, SEQ, CHANNELS, grad=True) for _ in range(3))

    def attention():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    flops = 4 * BATCH * HEADS * SEQ * SEQ / 2 * CHANNELS
    show("attention forward", seconds(attention), flops=flops)
    o = attention()
    d = torch.randn_like(o)
    show("attention backward", seconds(lambda: torch.autograd.grad(o, (q, k, v), d, retain_graph=True)), flops=2.5 * flops)
    x = tensor(TOKENS, HIDDEN)
    norm = torch.nn.LayerNorm(HIDDEN, device="cuda", dtype=torch.bfloat16)
    show("layer norm forward", seconds(lambda: norm(x)), moved=2 * x.numel() * 2)
    y = tensor(TOKENS, 4 * HIDDEN)
    show("gelu (tanh) forward", seconds(lambda: F.gelu(y, approximate="tanh")), moved=2 * y.numel() * 2)


# name, layers, width, heads, vocabulary (as drawn, as padded), batch, sequence: bench ladder's
SHAPES = [("shakespeare-char-11m", 6, 384, 6, 65, 128, 64, 256), ("gpt2-124m", 12, 768, 12, 50257, 50304, 16, 1024)]
# name, TF32, bf16 (autocast over f32), flash attention, torch.compile's mode
RUNGS = [("f32", False, False, False, None), ("TF32", True, False, False, None), ("bf16", True, True, False, None), ("flash", True, True, True, None),
         ("fused (compiled)", True, True, True, "default"), ("graphs", True, True, True, "reduce-overhead")]


def step_time(shape, rung):
    _, layers, width, heads, drawn, padded, batch, seq = shape
    _, tf32, bf16, flash, mode = rung
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.manual_seed(1234)
    model = GPT(layers, width, heads, padded, seq, flash).cuda()
    optimizer = adamw(model)
    forward = torch.compile(model, mode=mode) if mode else model
    times, end = [], None
    while end is None or (time.perf_counter() < end and len(times) < 200) or len(times) < 8:
        began = time.perf_counter()
        rows = torch.randint(drawn, (batch, seq + 1)).pin_memory().cuda(non_blocking=True)
        step(model, forward, optimizer, rows, bf16)
        times.append(time.perf_counter() - began)
        if len(times) == 4:  # compilation and the allocator are over
            end = time.perf_counter() + 2
    return statistics.median(times[4:])


def ladder():
    print("\n| model | tokens a step | torch, no dropout | step, ms | tokens/s | gain | memory, GiB |\n|---|---|---|---|---|---|---|", flush=True)
    before = {}
    for rung in RUNGS:  # what compiles, and takes long, comes last
        for shape in SHAPES:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            head = f"| {shape[0]} | {shape[6]} x {shape[7]} | {rung[0]} |"
            try:
                took = step_time(shape, rung)
            except Exception as e:  # a rung that fails hinders none
                print(f"{head} failed: {str(e).splitlines()[0] if str(e) else type(e).__name__} | | | |", flush=True)
                continue
            gain = f"{before[shape[0]] / took:.2f}x" if shape[0] in before else ""
            before[shape[0]] = took
            print(f"{head} {took * 1e3:.3f} | {shape[6] * shape[7] / took:.0f} | {gain} | {torch.cuda.max_memory_allocated() / 2**30:.2f} |", flush=True)


print(torch.__version__, torch.cuda.get_device_name(), flush=True)
ops()
ladder()

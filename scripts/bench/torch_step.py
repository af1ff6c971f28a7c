"""One training step in PyTorch on a CPU, of a shape that `monotron bench --model` knows: its peer.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch
    /tmp/venv/bin/python scripts/bench/torch_step.py --dtype bf16 --compile
    /tmp/venv/bin/python scripts/bench/torch_step.py --model llama-300m --micro-batch-size 1 --seq-length 2048

Model and step are torch_gpt.py's; random tokens. Prints one JSON object.
"""
import argparse
import json
import statistics
import time

from modules import need

need("torch")
import torch

from torch_gpt import GPT, Llama, adamw, step

MODELS = {
    "gpt2-124m": lambda: GPT(12, 768, 12, 50304, 1024),
    "llama-300m": lambda: Llama(20, 1024, 2816, 16, 32000, 2048),
}


def peak_memory():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", choices=MODELS, default="gpt2-124m")
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--micro-batch-size", type=int, default=4)
    p.add_argument("--seq-length", type=int, default=512)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1234)
    model = MODELS[a.model]()
    optimizer = adamw(model)
    forward = torch.compile(model) if a.compile else model
    times = []
    for n in range(a.steps + 2):  # two to warm up: compilation, then the allocator
        began = time.perf_counter()
        rows = torch.randint(model.words.num_embeddings, (a.micro_batch_size, a.seq_length + 1))
        loss = step(model, forward, optimizer, rows, a.dtype == "bf16")
        if n >= 2:
            times.append(time.perf_counter() - began)
    seconds = statistics.median(times)
    print(json.dumps({
        "torch": torch.__version__, "model": a.model, "dtype": a.dtype, "compile": a.compile, "threads": a.threads, "step_seconds": seconds,
        "fastest_step_seconds": min(times), "tokens_per_second": a.micro_batch_size * a.seq_length / seconds,
        "peak_memory_bytes": peak_memory(), "loss": loss,
    }))


if __name__ == "__main__":
    main()

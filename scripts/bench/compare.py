"""One training step, ours and PyTorch's, eager and compiled, by turns on one machine.

    python3 -m venv .tools/venv && .tools/venv/bin/pip install torch
    .tools/venv/bin/python scripts/bench/compare.py                          # GPT-2 124M, 4 x 512 tokens, f32
    .tools/venv/bin/python scripts/bench/compare.py --dtype bf16
    .tools/venv/bin/python scripts/bench/compare.py --model llama-300m --micro-batch-size 1 --seq-length 2048

Each round runs every program once, in a process of its own, and counts its median step; at the end stand
the medians of all rounds with their range, and what our rate is of each peer's in the same round. Compiled
PyTorch gets 8 minutes a round. bin/monotron must have been built. A program that fails ends the comparison.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

from modules import need

HERE = os.path.dirname(os.path.abspath(__file__))
MONOTRON = os.path.normpath(os.path.join(HERE, "..", "bin", "monotron"))
COMPILED_SECONDS = 480


def ask(command, limit=None):
    """What a program prints as one JSON object; None where it took longer than limit seconds. One that fails ends us, with its last line."""
    try:
        return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=limit).stdout)
    except subprocess.TimeoutExpired:
        return None
    except subprocess.CalledProcessError as e:
        last = e.stderr.decode(errors="replace").strip().splitlines()[-1:]
        sys.exit(f"compare.py: {' '.join(command)}: exit {e.returncode}: {''.join(last)}")


def at_least_one(text):
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1")
    return int(text)


def look_first():
    """Refuses before the first round what would end a later one."""
    if not os.access(MONOTRON, os.X_OK):
        sys.exit(f"compare.py: no {MONOTRON}: make builds it")
    need("torch")


def programs(a):
    shape = ["--model", a.model, "--micro-batch-size", str(a.micro_batch_size), "--seq-length", str(a.seq_length), "--steps", str(a.steps)]
    ours = [MONOTRON, "bench", *shape, "--json"] + (["--" + a.dtype] if a.dtype != "f32" else [])
    torch = [sys.executable, os.path.join(HERE, "torch_step.py"), *shape, "--dtype", a.dtype]
    return {"monotron": (ours, None), "torch": (torch, None), "torch compiled": (torch + ["--compile"], COMPILED_SECONDS)}


def row(name, results, ours):
    rates = [r["tokens_per_second"] for r in results]
    line = f"{name:16} {statistics.median(rates):8.1f} tokens/s ({min(rates):.1f} to {max(rates):.1f}) {max(r['peak_memory_bytes'] for r in results) / 2**30:6.2f} GiB"
    if "fraction_of_instruction_peak" in results[0]:
        shares = [r["fraction_of_instruction_peak"] for r in results]
        return line + f"  {statistics.median(shares):.3f} of the instructions' peak ({min(shares):.3f} to {max(shares):.3f}; {results[0]['instructions']})"
    times = [o["tokens_per_second"] / r["tokens_per_second"] for o, r in zip(ours, results)]
    return line + f"  ours: {statistics.median(times):.2f} times that ({min(times):.2f} to {max(times):.2f})"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", choices=["gpt2-124m", "llama-300m"], default="gpt2-124m")
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    p.add_argument("--micro-batch-size", type=at_least_one, default=4)
    p.add_argument("--seq-length", type=at_least_one, default=512)
    p.add_argument("--steps", type=at_least_one, default=4, help="counted in each round")
    p.add_argument("--rounds", type=at_least_one, default=5)
    a = p.parse_args()
    look_first()
    found = {name: [] for name in programs(a)}
    for n in range(a.rounds):
        for name, (command, limit) in programs(a).items():
            result = ask(command, limit)
            print(f"round {n + 1}: {name:16} " + (f"{result['tokens_per_second']:.1f} tokens/s" if result else f"not done after {limit} s"), flush=True)
            if result:
                found[name].append(result)
    print(f"{a.model}, {a.micro_batch_size} x {a.seq_length} tokens, {a.dtype}, median step of {a.steps}; medians of {a.rounds} rounds")
    for name, results in found.items():
        if len(results) == a.rounds:
            print(row(name, results, found["monotron"]))


if __name__ == "__main__":
    main()

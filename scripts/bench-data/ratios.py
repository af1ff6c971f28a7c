"""The data path of monotron and of its peers, in turns, each row a ratio.

Times are wall times, the best of --rounds; on a machine that others use too,
BENCH_CLOCK=cpu takes processor time instead (of all threads, so two cores count
twice). Ours include the start of the process and the sync of the files to disk; those of
peers inside this Python begin after their imports.
"""
import argparse
import glob
import hashlib
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

a = argparse.ArgumentParser()
a.add_argument("--bin", required=True)
a.add_argument("--text", required=True)
a.add_argument("--ranks", required=True)
a.add_argument("--rounds", type=int, default=3)
a = a.parse_args()
monotron = os.path.abspath(os.path.join(a.bin, "monotron"))
size = os.path.getsize(a.text)


cpu = os.environ.get("BENCH_CLOCK") == "cpu"


def clock():
    """Seconds; processor time is that of this process and its ended children."""
    if not cpu:
        return time.perf_counter()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def say(what, ours, theirs, unit, note=""):
    ratio = f"{ours / theirs:6.1f}x" if ours and theirs else "      -"
    cell = lambda v: f"{v:9.1f}" if v else "        -"
    print(f"{what:44s} {cell(ours)} {cell(theirs)} {unit:12s} {ratio}  {note}", flush=True)


def best(*works):
    """The least time of each of works, run in turns."""
    least = [float("inf")] * len(works)
    for _ in range(a.rounds):
        for i, work in enumerate(works):
            start = clock()
            work()
            least[i] = min(least[i], clock() - start)
    return least


def preprocess(out, *inputs):
    subprocess.run([monotron, "preprocess_data_fast", "--input", *inputs, "--output-prefix", out, "--tokenizer-type", "GPT2BPETokenizer",
                    "--append-eod", "--workers", "2"], check=True, stderr=subprocess.DEVNULL)


def gigatoken(folder):
    """What preprocess_data_fast does with gigatoken between its start and its end."""
    import awkward as ak
    import gigatoken as gt
    import numpy as np

    tokenizer = gt.Tokenizer.from_tiktoken(a.ranks)

    def run():
        docs = tokenizer.encode_files(gt.JsonlFileSource([a.text], field="text"), parallel=True)
        flat, lengths = np.asarray(ak.flatten(docs), dtype=np.uint16), np.asarray(ak.num(docs, axis=1))
        flat = np.insert(flat, np.cumsum(lengths), 50256).astype(np.uint16, copy=False)
        with open(os.path.join(folder, "giga.bin"), "wb") as f:
            f.write(flat.tobytes())

    return run


def texts(folder):
    ours = os.path.join(folder, "ours")
    try:
        peer = gigatoken(folder)
    except ImportError as e:
        took = best(lambda: preprocess(ours, a.text))
        say("JSON lines to .bin/.idx, 2 workers", size / took[0] / 1e6, None, "MB/s", f"gigatoken: {e}")
    else:
        took = best(lambda: preprocess(ours, a.text), peer)
        with open(ours + "_text_document.bin", "rb") as f, open(os.path.join(folder, "giga.bin"), "rb") as g:
            same = "the same tokens" if f.read() == g.read() else "OTHER TOKENS"
        say("JSON lines to .bin/.idx, 2 workers: gigatoken", size / took[0] / 1e6, size / took[1] / 1e6, "MB/s", same)
    checkout = os.environ.get("MEGATRON_DIR")
    for tool, flags in (("preprocess_data_fast", ["--use-gigatoken"]), ("preprocess_data", ["--workers", "2"])):
        name = f"JSON lines to .bin/.idx: Megatron's {tool}"
        if not checkout:
            say(name, None, None, "MB/s", "MEGATRON_DIR does not name a checkout")
            continue
        start = clock()
        run = subprocess.run([sys.executable, os.path.join(checkout, "tools", tool + ".py"), "--input", a.text, "--output-prefix", os.path.join(folder, "m"),
                              "--append-eod", "--tokenizer-type", "GPT2BPETokenizer", *flags], capture_output=True, text=True)
        rate = size / (clock() - start) / 1e6 if run.returncode == 0 else None
        say(name, size / took[0] / 1e6, rate, "MB/s", "" if rate else (run.stderr.strip().splitlines() or ["failed"])[-1][:80])


def memory(folder):
    """Peak memory of one input and of twenty, in MB; each in a process of its own."""
    peaks = []
    for n in (1, 20):
        code = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stderr=subprocess.DEVNULL); "
                "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        out = subprocess.run([sys.executable, "-c", code, monotron, "preprocess_data", "--input", *[a.text] * n, "--output-prefix", os.path.join(folder, "mem"),
                              "--tokenizer-type", "GPT2BPETokenizer", "--append-eod", "--workers", "2"], check=True, capture_output=True, text=True)
        peaks.append(int(out.stdout) / 1024)
    say("peak memory, 20 times the input and once", peaks[1], peaks[0], "MB", f"{100 * (peaks[1] / peaks[0] - 1):+.1f}%")


def helper():
    """Megatron's compiled index helper, out of megatron-core, without importing torch."""
    for path in glob.glob(os.path.join(sys.prefix, "lib/python*/site-packages/megatron/core/datasets/helpers_cpp*.so")):
        spec = importlib.util.spec_from_file_location("helpers_cpp", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    return None


def length(i):
    """That of sequence i of `monotron bench data`'s made-up dataset."""
    return 1 + i * 2654435761 % 2**32 % 1999


def md5(array):
    return hashlib.md5(array.tobytes()).hexdigest()


def indexes():
    import numpy as np

    ours = json.loads(subprocess.run([monotron, "bench", "data", "--json", "--rounds", str(a.rounds), *["--processor-time"] * cpu], check=True, capture_output=True).stdout)
    h = helper()
    if h is None:
        for x in ours["index"]:
            say(f"index arrays, {x['epochs']} epochs", x["samples_per_second"] / 1e6, None, "M samples/s", "megatron-core is not installed")
        say("blend of 100 datasets", ours["blend"]["samples_per_second"] / 1e6, None, "M samples/s", "megatron-core is not installed")
        return
    sizes = np.array([length(i) for i in range(1_000_000)], dtype=np.int32)
    tokens = int(sizes.sum())
    for x in ours["index"]:
        made = {}

        def build():
            rng, epochs = np.random.RandomState(1234), x["epochs"]
            docs = np.mgrid[0:epochs, 0:len(sizes)][1]
            docs[:] = np.arange(len(sizes))
            docs = docs.reshape(-1).astype(np.int32)
            rng.shuffle(docs)
            rows = h.build_sample_idx_int32(sizes, docs, x["seq_length"], epochs, tokens, True, 1)
            order = np.arange(rows.shape[0] - 1, dtype=np.uint32)
            rng.shuffle(order)
            made.update(document_index=docs, sample_index=rows, shuffle_index=order)

        took = best(build)[0]
        same = all(md5(made[name]) == x["md5"][name] for name in made)
        say(f"index arrays, {x['epochs']} epochs: Megatron's helper", x["samples_per_second"] / 1e6, x["samples"] / took / 1e6, "M samples/s",
            "the same arrays" if same else "OTHER ARRAYS")
    b = ours["blend"]
    weights = np.array([length(i) for i in range(b["datasets"])], dtype=np.float64)
    weights /= weights.sum()
    member, number = np.zeros(b["samples"], np.int16), np.zeros(b["samples"], np.int64)
    took = best(lambda: h.build_blending_indices(member, number, weights, b["datasets"], b["samples"], False))[0]
    same = md5(member) == b["md5"]["dataset_index"] and md5(number) == b["md5"]["dataset_sample_index"]
    say(f"blend of {b['datasets']} datasets: Megatron's helper", b["samples_per_second"] / 1e6, b["samples"] / took / 1e6, "M samples/s",
        "the same arrays" if same else "OTHER ARRAYS")
    for l in ours["loader"]:
        say(f"loader, {l['workers']} workers", l["tokens_per_second"] / 1e6, None, "M tokens/s")


with open("/proc/cpuinfo") as f:
    model = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), "?")
print(f"{model}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; {size / 1e6:.0f} MB of JSON lines; {'processor' if cpu else 'wall'} time")
print(f"{'':44s} {'ours':>9s} {'theirs':>9s} {'':12s} {'ratio':>7s}")
with tempfile.TemporaryDirectory() as folder:
    texts(folder)
    memory(folder)
indexes()

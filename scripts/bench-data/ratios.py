"""The data path of monotron and of its peers, in turns, each row a ratio.

Times are wall times, the best of --rounds; on a machine that others use too,
BENCH_CLOCK=cpu takes processor time instead (of all threads, so two cores count
twice). Ours include the start of the process and the sync of the files to disk; those of
peers inside this Python begin after their imports. Megatron's preprocess_data_fast has
two rows: the whole command, and what it counts itself, after its imports.
"""
import argparse
import glob
import hashlib
import importlib.util
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

a = argparse.ArgumentParser()
a.add_argument("--bin", required=True)
a.add_argument("--text", required=True)
a.add_argument("--ranks", required=True)
a.add_argument("--encode", required=True, help="what scripts/bench-data/encode builds")
a.add_argument("--vocabulary", help="folder with gpt2-vocab.json and gpt2-merges.txt, for Megatron's own tools")
a.add_argument("--rounds", type=int, default=3)
a.add_argument("--parts", nargs="+", default=["encode", "text", "memory", "index"], choices=["encode", "text", "memory", "index"])
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
        same = "the same tokens" if read(ours + "_text_document.bin") == read(os.path.join(folder, "giga.bin")) else "OTHER TOKENS"
        say("JSON lines to .bin/.idx, 2 workers: gigatoken", size / took[0] / 1e6, size / took[1] / 1e6, "MB/s", same)
    megatron(folder, size / took[0] / 1e6, ours)


def encode():
    """GPT-2's BPE alone, on one thread, of texts in memory: a new encoder, then one that has seen them."""
    import gigatoken as gt
    import numpy as np
    import awkward as ak

    texts = [json.loads(line)["text"].encode() for line in open(a.text, encoding="utf-8", newline="\n")]
    total = sum(map(len, texts))
    least = {"first": [float("inf")] * 2, "warm": [float("inf")] * 2}
    for _ in range(a.rounds):
        ours = json.loads(subprocess.run([a.encode, a.text, "1", *["cpu"] * cpu], check=True, capture_output=True).stdout)
        tokenizer = gt.Tokenizer.from_tiktoken(a.ranks)
        for name, best_of in least.items():
            start = clock()
            docs = tokenizer.encode_batch(texts, parallel=False)
            best_of[:] = min(best_of[0], ours[name]), min(best_of[1], clock() - start)
    same = md5(np.asarray(ak.flatten(docs), dtype=np.uint16)) == ours["md5"]
    for name, what in (("first", "first pass"), ("warm", "second pass")):
        say(f"GPT-2 BPE, one thread, {what}: gigatoken", total / least[name][0] / 1e6, total / least[name][1] / 1e6, "MB/s", "the same ids" if same else "OTHER IDS")


def megatron(folder, rate, ours):
    """Megatron's own tools, of the checkout MEGATRON_DIR, by the Python that MEGATRON_PYTHON names."""
    checkout = os.environ.get("MEGATRON_DIR")
    name = "JSON lines to .bin/.idx: Megatron's "
    if not checkout or not a.vocabulary:
        say(name + "tools", None, None, "MB/s", "MEGATRON_DIR does not name a checkout")
        return
    gpt2 = os.path.join(folder, "gpt2")  # what the tools would fetch: they look here first
    os.mkdir(gpt2)
    with open(os.path.join(gpt2, "config.json"), "w") as f:
        f.write('{"model_type": "gpt2"}')
    for theirs, file in (("vocab.json", "gpt2-vocab.json"), ("merges.txt", "gpt2-merges.txt")):
        shutil.copy(os.path.join(a.vocabulary, file), os.path.join(gpt2, theirs))
    for tool, flags in (("preprocess_data_fast", ["--use-gigatoken"]), ("preprocess_data", ["--workers", "2"])):
        out = os.path.join(folder, tool)
        start = clock()
        run = subprocess.run([os.environ.get("MEGATRON_PYTHON", sys.executable), os.path.join(checkout, "tools", tool + ".py"), "--input", os.path.abspath(a.text),
                              "--output-prefix", out, "--append-eod", "--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", "gpt2/vocab.json",
                              "--merge-file", "gpt2/merges.txt", *flags], capture_output=True, text=True, cwd=folder, env={**os.environ, "HF_HUB_OFFLINE": "1"})
        took = clock() - start
        if run.returncode:
            say(name + tool, None, None, "MB/s", (run.stderr.strip().splitlines() or ["failed"])[-1][:80])
            continue
        same = all(read(f"{out}_text_document.{ext}") == read(f"{ours}_text_document.{ext}") for ext in ("bin", "idx"))
        note = "the same files" if same else "OTHER FILES"
        say(name + tool, rate, size / took / 1e6, "MB/s", note + ", whole command")
        counted = re.search(r"Elapsed time: ([0-9.]+) s", run.stdout)
        if counted and not cpu:
            say(name + tool, rate, size / float(counted[1]) / 1e6, "MB/s", "as it counts, after its imports")


def read(path):
    with open(path, "rb") as f:
        return f.read()


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
if "encode" in a.parts:
    try:
        encode()
    except ImportError as e:
        say("GPT-2 BPE, one thread", None, None, "MB/s", f"gigatoken: {e}")
with tempfile.TemporaryDirectory() as folder:
    if "text" in a.parts:
        texts(folder)
    if "memory" in a.parts:
        memory(folder)
if "index" in a.parts:
    indexes()

"""Random corpora, splits, blends, lengths, seeds and masks through megatron-core's
GPTDataset and BlendedDataset, and through ours: samples.py BIN FOLDER COUNT SEED

Compared are the length of every split, its first and last samples and some between
(tokens, labels, loss mask, positions), and every index array that is written.
"""
import glob
import hashlib
import json
import os
import random
import resource
import subprocess
import sys
import types
import warnings

import numpy as np
import torch

warnings.simplefilter("ignore")
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
from megatron.core.datasets.utils import get_blend_from_list

bin, folder, count, seed = os.path.abspath(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
os.chdir(folder)
torch.set_num_threads(1)  # a process forked here has no others
SPLITS = ("train", "valid", "test")
VOCAB = 900
EOD = VOCAB - 1


class Tokenizer:
    """What GPTDataset wants of one: Megatron's null tokenizer."""
    vocab_size, eod, pad = VOCAB, EOD, -1
    unique_identifiers = {"class": "NullTokenizer"}


def corpus(rng, name):
    """A pair of 5 to 400 documents: of one or more sequences, some without tokens, EOD at ends or also within."""
    inside, longest, empty = rng.random() < .3, rng.choice([3, 20, 200, 900]), rng.random() < .2
    builder = IndexedDatasetBuilder(name + ".bin", dtype=np.uint16)
    for _ in range(rng.randrange(5, 400)):
        lengths = []
        for _ in range(rng.choice([1, 1, 1, 3])):
            n = 0 if empty and rng.random() < .2 else rng.randrange(1, longest + 1)
            ids = np.array([rng.randrange(EOD) for _ in range(n)], dtype=np.uint16)
            if n and rng.random() < .8:
                ids[-1] = EOD
            if inside and n > 2:
                ids[rng.randrange(n)] = EOD
            builder.data_file.write(ids.tobytes())
            builder.sequence_lengths.append(n)
            lengths.append(n)
        builder.document_indices.append(len(builder.sequence_lengths))
    builder.finalize(name + ".idx")
    return name


def blend(rng, prefixes):
    """Words of --data-path."""
    some = rng.sample(prefixes, rng.choice([1, 1, 2, 3, min(7, len(prefixes))]))
    if rng.random() < (.15 if len(some) == 1 else .6):
        return [w for p in some for w in (rng.choice([str(rng.randrange(1, 9)), f"{rng.random() + .01:.3f}"]), p)]
    return some


def options(rng, prefixes):
    o = types.SimpleNamespace(seed=rng.choice([0, 1, 1234, rng.randrange(2**32)]), seq=rng.choice([1, 2, 7, 16, 64, 257]), reset_position=rng.random() < .3,
                              reset_mask=rng.random() < .3, eod_loss=rng.random() < .3, surplus=rng.choice([.005, .005, .1, .5]))
    weights = [rng.choice([0, 1, 5, 80, 949, .3]) for _ in range(3)]
    weights[0] = weights[0] or 1
    o.split = ",".join(map(str, weights[:rng.choice([1, 2, 3, 3, 3])]))
    whole = rng.random() < .2
    o.sizes = [None if whole else rng.choice([1, 10, 300, 3000]) for _ in SPLITS]
    o.words = blend(rng, prefixes)
    o.each = [blend(rng, prefixes) if rng.random() < .8 else None for _ in SPLITS] if rng.random() < .25 else None
    if o.each and o.each[0] is None:
        o.each[0] = o.words
    return o


def theirs(o, cache):
    """Datasets of the splits, or the exception that they end in."""
    data = dict(blend=get_blend_from_list(o.words), split=o.split)
    if o.each:
        data = dict(blend_per_split=[get_blend_from_list(w) for w in o.each])
    config = GPTDatasetConfig(random_seed=o.seed, sequence_length=o.seq, path_to_cache=cache, tokenizer=Tokenizer(), num_dataset_builder_threads=1,
                              mmap_bin_files=True, mid_level_dataset_surplus=o.surplus, reset_position_ids=o.reset_position,
                              reset_attention_mask=o.reset_mask, eod_mask_loss=o.eod_loss, create_attention_mask=False, **data)
    return BlendedMegatronDatasetBuilder(GPTDataset, o.sizes, lambda: True, config).build()


def flags(o, cache):
    f = ["--seed", o.seed, "--seq-length", o.seq, "--mid-level-dataset-surplus", o.surplus, "--data-cache-path", cache,
         "--tokenizer-type", "NullTokenizer", "--vocab-size", VOCAB]
    f += [w for on, w in ((o.reset_position, "--reset-position-ids"), (o.reset_mask, "--reset-attention-mask"), (o.eod_loss, "--eod-mask-loss")) if on]
    f += ["--data-path", *o.words, "--split", o.split] if not o.each else [w for s, words in zip(SPLITS, o.each) if words for w in (f"--{s}-data-path", *words)]
    for s, n in zip(SPLITS, o.sizes):
        f += [f"--{s}-samples", n] if n is not None else []
    return list(map(str, f))


def ours(o, cache, split, first, n):
    done = subprocess.run([f"{bin}/monotron", "inspect", "samples", *flags(o, cache), "--show", split, "--first", str(first), "--count", str(n)], capture_output=True, text=True)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr.strip()


def same(sample, mine):
    return all(np.array_equal(np.asarray(sample[k].tolist()), np.asarray(mine[k])) for k in ("tokens", "labels", "loss_mask", "position_ids"))


def compare(o, case):
    """What differs, in words; None where Megatron ends in an error and so do we."""
    here = {who: os.path.join(f"case{case}", who) for who in ("theirs", "ours")}
    try:
        sets = theirs(o, here["theirs"])
    except Exception as e:
        return refused(o, here["ours"], f"{type(e).__name__}: {str(e)[:200]}")
    wrong = []
    for split, data in zip(SPLITS, sets):
        if data is None or len(data) == 0:
            continue
        n = len(data)
        for first in sorted({0, n // 2, max(0, n - 4)}):
            code, mine, said = ours(o, here["ours"], split, first, min(4, n - first))
            if code:
                return wrong + [f"{split}: refused here: {said[-300:]}"]
            if f"{split}: {n} samples" not in said:
                wrong.append(f"{split}: {said}, Megatron has {n}")
            wrong += [f"{split}: sample {m['index']} differs" for m in mine if not same(data[m["index"]], m)]
    arrays = [set(hashes(here[who])) for who in ("theirs", "ours")]
    if arrays[0] != arrays[1]:
        wrong.append(f"index arrays: {len(arrays[0] - arrays[1])} of Megatron's {len(arrays[0])} are not among our {len(arrays[1])}")
    return wrong


def hashes(folder):
    """Of all index arrays, but those of a dataset without samples."""
    for last in glob.glob(folder + "/*-shuffle_index.npy"):
        if len(np.load(last)):
            yield from (hashlib.sha256(open(f, "rb").read()).hexdigest() for f in glob.glob(last.removesuffix("shuffle_index.npy") + "*.npy"))
    yield from (hashlib.sha256(open(f, "rb").read()).hexdigest() for f in glob.glob(folder + "/*-dataset_*index.npy"))


def refused(o, cache, why):
    """What ends there must end here too."""
    code, _, _ = ours(o, cache, "train", 0, 1)
    return None if code else [f"Megatron: {why}; here it is taken"]


def alone(o, case):
    """compare in a process of its own: where a split has no sequence, Megatron's loops do not end."""
    into, out = os.pipe()
    child = os.fork()
    if child == 0:
        used = resource.getrusage(resource.RUSAGE_SELF)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 6,) * 2)
        torch.distributed.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meet{case}", rank=0, world_size=1)
        os.write(out, json.dumps(compare(o, case)).encode()[:60000])
        os._exit(0)
    os.close(out)
    with os.fdopen(into, "rb") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return json.loads(said) if said else refused(o, f"case{case}/ours", "no end in 6 s of processor time")


rng = random.Random(seed)
prefixes = [corpus(rng, f"corpus{i}") for i in range(12)]
both = failed = 0
for case in range(count):
    o = options(rng, prefixes)
    wrong = alone(o, case)
    both += wrong is None
    if wrong:
        failed += 1
        print(f"FAIL case {case}: {vars(o)}\n     " + "\n     ".join(wrong[:5]), flush=True)
print(f"{count} random datasets (seed {seed}): {count - both - failed} equal, {both} refused by both, {failed} differ")
sys.exit(1 if failed else 0)

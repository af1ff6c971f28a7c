"""Token files of both sides, read by the other: pairs.py BIN FOLDER"""
import json
import os
import random
import subprocess
import sys
import warnings

import numpy as np

warnings.simplefilter("ignore")
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

bin, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
os.chdir(folder)
rng = random.Random(11)
wrong = []


def check(what, good):
    print(f"{'ok  ' if good else 'FAIL'} {what}", flush=True)
    if not good:
        wrong.append(what)


def documents(top):
    """Documents of sequences: some without any, some sequences without tokens."""
    return [[[rng.randrange(top) for _ in range(rng.choice([0, 1, 7, 300]))] for _ in range(rng.choice([0, 1, 1, 3]))] for _ in range(300)]


def monotron(*words, **more):
    return subprocess.run([f"{bin}/monotron", *words], check=True, capture_output=True, text=True, **more)


# Ours, read by Megatron: lists of strings, by a tokenizer of numbers.
for vocab, dtype in ((60000, np.uint16), (200000, np.int32)):
    docs = [[s for s in doc if s] for doc in documents(vocab - 1)]  # a tokenizer of numbers takes no empty text
    with open("in.jsonl", "w") as f:
        for doc in docs:
            f.write(json.dumps({"text": [" ".join(map(str, s)) for s in doc]}) + "\n")
    monotron("preprocess_data", "--input", "in.jsonl", "--output-prefix", "ours", "--tokenizer-type", "NullTokenizer", "--vocab-size", str(vocab), "--workers", "2")
    for mmap in (True, False):
        d = IndexedDataset("ours_text_document", mmap=mmap)
        flat = [s for doc in docs for s in doc]
        ends = np.cumsum([0] + [len(doc) for doc in docs])
        good = len(d) == len(flat) and all(d[i].dtype == dtype and d[i].tolist() == s for i, s in enumerate(flat))
        good = good and d.document_indices.tolist() == ends.tolist() and d.sequence_lengths.tolist() == [len(s) for s in flat]
        check(f"ours read by Megatron, {vocab} ids, {'mapped' if mmap else 'read'}", good)

# Megatron's, read by ours: every token type, with parts of it and all of it.
for dtype in (np.uint8, np.int8, np.int16, np.uint16, np.int32, np.int64):
    docs = documents(min(np.iinfo(dtype).max, 200000))
    b = IndexedDatasetBuilder("theirs.bin", dtype=dtype)
    for doc in docs:
        b.add_document(np.array([x for s in doc for x in s], dtype=dtype), [len(s) for s in doc])
    b.finalize("theirs.idx")
    said = monotron("inspect", "dataset", "theirs").stdout
    flat = [x for doc in docs for s in doc for x in s]
    good = str(len(docs)) in said and str(len(flat)) in said.replace(",", "")
    # Made anew by ours, from theirs: the same bytes.
    monotron("preprocess_data", "--input", "theirs", "--input-format", "tokens", "--output-prefix", "again")
    good = good and all(open(f"theirs.{e}", "rb").read() == open(f"again_text_document.{e}", "rb").read() for e in ("bin", "idx"))
    check(f"Megatron's read by ours, {np.dtype(dtype).name}", good)

# Joined by both: the same bytes.
os.mkdir("parts")
for i in range(3):
    b = IndexedDatasetBuilder(f"parts/p{i}.bin", dtype=np.uint16)
    for doc in documents(60000):
        b.add_document(np.array([x for s in doc for x in s], dtype=np.uint16), [len(s) for s in doc])
    b.finalize(f"parts/p{i}.idx")
b = IndexedDatasetBuilder("joined.bin", dtype=np.uint16)
for i in range(3):
    b.add_index(f"parts/p{i}")
b.finalize("joined.idx")
monotron("merge_datasets", "--input", "parts", "--output-prefix", "merged")
check("joined by both", all(open(f"joined.{e}", "rb").read() == open(f"merged.{e}", "rb").read() for e in ("bin", "idx")))
sys.exit(bool(wrong))

"""Writes tokenizer/testdata/peers: small tokenizers of several styles, and what the originals do with them.

usage: fixtures.py OUTPUT DATA TEXT...
OUTPUT/<name>/tokenizer.json or OUTPUT/<name>.model, and OUTPUT/<name>.jsonl with
lines {text, ids, back}: the text's ids, and the text of those ids.
"""
import json
import os
import random
import sys

import compare
import models

out, data, *texts = sys.argv[1:]
os.makedirs(out, exist_ok=True)
hf = ["llama3", "qwen2", "deepseek", "llama2", "lower", "unigram-bytes"]
models.train_hf(out, texts, 450, hf)
models.train_sentencepiece(out, texts, 500, ["sp-bpe", "sp-unigram-identity"])
models.write_ranks(out, os.path.join(out, "..", "peers-vocab.json"))
rng = random.Random(7)
strings = [compare.text(rng)[:120] for _ in range(20)]
for f in compare.families(out, data):
    if f.name == "GPT2BPETokenizer":
        continue
    ids = [list(i) for i in f.encode(strings)]
    with open(f"{out}/{f.name.removeprefix('hf/')}.jsonl", "w") as lines:
        for s, i, back in zip(strings, ids, f.decode(ids)):
            lines.write(json.dumps({"text": s, "ids": i, "back": back}) + "\n")

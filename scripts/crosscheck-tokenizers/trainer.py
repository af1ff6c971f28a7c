"""Trains a BPE with package tokenizers and with monotron, and compares the merges.

usage: trainer.py MONOTRON TEXT...
"""
import json
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

monotron, *texts = sys.argv[1:]
size = 8000
t = Tokenizer(models.BPE())
t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
t.train(texts, trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=["<|endoftext|>"],
                                   initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
want = json.loads(t.to_str())["model"]
with tempfile.TemporaryDirectory() as d:
    subprocess.run([monotron, "train_tokenizer", "--input", *texts, "--output-dir", d, "--vocab-size", str(size)], check=True, capture_output=True)
    got = json.load(open(f"{d}/tokenizer.json", encoding="utf-8"))["model"]
same = sum(a == b for a, b in zip(want["merges"], got["merges"]))
print(f"{'train_tokenizer':24} {len(want['merges'])} merges: {len(want['merges']) - same} differ; vocabulary {'equal' if want['vocab'] == got['vocab'] else 'DIFFERS'}")
sys.exit(want["merges"] != got["merges"] or want["vocab"] != got["vocab"])

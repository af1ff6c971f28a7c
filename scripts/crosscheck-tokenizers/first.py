"""Where does a text begin? Random normalizers before a Metaspace whose
prepend_scheme is `first`, through the original and through monotron.

A normalizer may drop, join or spread the first character, and the original asks
its alignments, not the text, whether a piece is the first.

usage: first.py MONOTRON FOLDER TOKENIZERS STRINGS SEED
Exit 1 when a string is encoded otherwise, or a tokenizer is refused that is not
known to be.
"""
import base64
import collections
import contextlib
import json
import os
import random
import subprocess
import sys

import sentencepiece
from tokenizers import Tokenizer

from compare import MARKS, SPACES, pieces

BEGINNINGS = ["\x0b", "\x01\x02", "\u00a8", "\u2026", "\u0301", "\u1fc1", "ﷺ", "\ufb01", "\u0130", "½", "ﬁ", "e\u0301", "\u0041\u030a", "▁", " ", "  ", "\x1f ", "<s>", "\u200b", "."]
TOKENS = ["<unk>", "▁", "▁a", "the", "▁the", ".", " ", "¨", "\u0301", "x", "xx", "f", "i", "e", "é", "1"]


def charsmap(work):
    """The table of nmt_nfkc, out of a model that is trained for it."""
    from sentencepiece import sentencepiece_model_pb2
    text = os.path.join(work, "text")
    with open(text, "w", encoding="utf-8") as out:
        out.write("the quick brown fox jumps over the lazy dog\n" * 20)
    sentencepiece.SentencePieceTrainer.train(input=text, model_prefix=os.path.join(work, "m"), vocab_size=40, hard_vocab_limit=False, minloglevel=9)
    m = sentencepiece_model_pb2.ModelProto()
    with open(os.path.join(work, "m.model"), "rb") as f:
        m.ParseFromString(f.read())
    return base64.b64encode(m.normalizer_spec.precompiled_charsmap).decode()


def normalizer(rng, table):
    kind = rng.choice(["Nmt", "Nmt", "StripAccents", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Replace", "Replace", "Prepend", "Strip", "Precompiled"])
    if kind == "Replace":
        pattern = {"String": rng.choice(["x", "the", "▁", "\x0b"])} if rng.random() < 0.5 else {"Regex": rng.choice([r"[\s]{2,}", r"^\s", r"[\x0b▁]", r"\.", "^"])}
        return {"type": "Replace", "pattern": pattern, "content": rng.choice(["", " ", "y", "▁", "xx"])}
    if kind == "Prepend":
        return {"type": "Prepend", "prepend": rng.choice(["▁", "x", "xx"])}
    if kind == "Strip":
        return {"type": "Strip", "strip_left": rng.random() < 0.5, "strip_right": rng.random() < 0.5}
    if kind == "Precompiled":
        return {"type": "Precompiled", "precompiled_charsmap": table}
    return {"type": kind}


def tokenizer(rng, table):
    chain = []
    for _ in range(rng.randint(1, 3)):
        chain.append(normalizer(rng, table))
    meta = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": rng.random() < 0.7}
    cuts = [{"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"}, {"type": "Digits", "individual_digits": True}, {"type": "Whitespace"}]
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": 1000, "content": "<s>", "single_word": False, "lstrip": rng.random() < 0.5, "rstrip": False, "normalized": rng.random() < 0.5, "special": True}],
            "normalizer": {"type": "Sequence", "normalizers": chain} if len(chain) > 1 else chain[0],
            "pre_tokenizer": meta if rng.random() < 0.5 else {"type": "Sequence", "pretokenizers": [rng.choice(cuts), meta]},
            "post_processor": None, "decoder": None,
            "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": [[t, -1.0 - i] for i, t in enumerate(TOKENS + [f"<{i}>" for i in range(1000 - len(TOKENS))])]}}


def string(rng):
    s = "".join(rng.choice(BEGINNINGS) for _ in range(rng.randint(0, 3)))
    s += "".join(rng.choice(MARKS + SPACES) for _ in range(rng.randint(0, 2))) if rng.random() < 0.3 else ""
    return s + "".join(pieces(rng) for _ in range(rng.randint(0, 3)))


@contextlib.contextmanager
def silent():
    """What the original's panics write goes nowhere: a backtrace each, hundreds in a run."""
    keep, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(keep, 2)
        os.close(keep)
        os.close(nowhere)


def main():
    monotron, folder, tokenizers, strings, seed = sys.argv[1:]
    rng = random.Random(int(seed))
    work = os.path.join(folder, "first")
    os.makedirs(work, exist_ok=True)
    table = charsmap(work)
    count, wrong, panics, refused = 0, 0, 0, collections.Counter()
    for n in range(int(tokenizers)):
        spec = tokenizer(rng, table)
        path = os.path.join(work, "tokenizer.json")
        with open(path, "w", encoding="utf-8") as out:
            json.dump(spec, out)
        try:
            with silent():
                theirs = Tokenizer.from_file(path)
        except BaseException:  # the original panics on a table that drops what an added token begins with
            panics += 1
            continue
        texts, want = [], []
        for _ in range(int(strings)):
            s = string(rng)
            try:
                with silent():
                    want.append(theirs.encode(s).ids)
                texts.append(s)
            except BaseException:  # as above
                panics += 1
        r = subprocess.run([monotron, "tokenize", "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", path, "--json-key", "text"],
                           input="".join(json.dumps({"text": s}) + "\n" for s in texts), capture_output=True, text=True, encoding="utf-8")
        if r.returncode:
            refused[r.stderr.strip().split(": ", 1)[-1][:160]] += 1
            continue
        got = [json.loads(line) for line in r.stdout.split("\n") if line]
        count += len(texts)
        bad = [i for i in range(len(texts)) if got[i] != want[i]]
        wrong += len(bad)
        for i in bad[:1]:
            print(json.dumps(spec["normalizer"])[:300], json.dumps(spec["pre_tokenizer"])[:200], ascii(texts[i]), "\n   ours", got[i], "\n   theirs", want[i], flush=True)
    print(f"prepend_scheme first: {count} strings over {tokenizers} tokenizers, {wrong} encoded otherwise; the original panicked {panics} times; refused {dict(refused)}")
    sys.exit(1 if wrong else 0)


main()

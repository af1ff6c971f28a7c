"""Encodes random Unicode strings with the originals and with monotron.

usage: compare.py MONOTRON FOLDER DATA COUNT SEED [FAMILY...]
FOLDER is what models.py made, DATA holds gpt2-vocab.json and gpt2-merges.txt.
Prints a line a family: strings, ids, and how many differ. Exit 1 when any does.
"""
import glob
import json
import os
import random
import subprocess
import sys
import unicodedata

import sentencepiece
import tiktoken
from tokenizers import Tokenizer

MARKS = [chr(c) for c in range(0x300, 0x370)] + list("\u0345\u05b0\u05bc\u064b\u0651\u093c\u094d\u1dce\u20e3\ufe0f\U00011930")
EMOJI = ["👩‍🚀", "👨‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "1️⃣", "☯", "❤️", "🫠", "\U0001fae8"]
SPACES = [" ", "  ", "\t", "\n", "\r\n", "\r", "\u00a0", "\u3000", "\u2028", "\u2029", "\u0085", "\u1680", "\u200b", "\u200d", "\ufeff", "\x0b", "\x0c", "\x1c"]
WORDS = ["the", "The", "THE", "don't", "I'M", "we'LL", "it'ſ", "'RE", "naïve", "Straße", "word", "words", "ﬁne", "İstanbul", "ΣΑΣ", "HTTPServer",
         "camelCase", "x1y2", "3.14159", "1,000,000", "½", "Ⅷ", "①", "٣٤٥", "๑๒", "https://a.b/c?d=e", "/usr/bin//", "...", "!!!", "—", "“q”", "func(",
         "return", "==", "<s>", "</s>", "<unk>", "<mask>", "<|endoftext|>", "<|im_start|>", "<|im_start|>x", "<sep>", "<0x0A>", "▁", "▁▁", "Ġ", "</w>",
         "你好", "世界", "こんにちは", "カタカナ", "한국어", "\u1112\u1161\u11ab", "שלום", "مرحبا", "नमस्ते", "สวัสดี", "ខ្មែរ", "မြန်မာ", "Привет", "é", "e\u0301", "ﷺ", "㋿"]
CONTROLS = [chr(c) for c in [*range(1, 32), 127, 0x80, 0x8f, 0x9f, 0xad, 0x200e, 0x202e, 0x2066, 0xfff9, 0xfffd, 0xfffe, 0xffff, 0xd7ff, 0xe000, 0x10ffff]]


def pieces(rng):
    kind = rng.random()
    if kind < 0.40:
        return rng.choice(WORDS)
    if kind < 0.60:
        return rng.choice(SPACES) * (1 if rng.random() < 0.8 else rng.randint(2, 12))
    if kind < 0.68:
        return rng.choice(EMOJI)
    if kind < 0.75:
        return "".join(rng.choice(MARKS) for _ in range(rng.randint(1, 4 if rng.random() < 0.95 else 45)))
    if kind < 0.80:
        return rng.choice(CONTROLS)
    if kind < 0.85:
        return "".join(rng.choice("0123456789") for _ in range(rng.randint(1, 12)))
    if kind < 0.93:
        return "".join(rng.choice("abcdefgXYZ ,.'/-_") for _ in range(rng.randint(1, 12)))
    if kind < 0.97:
        return chr(rng.choice([rng.randrange(0x80, 0x3000), rng.randrange(0x3000, 0xd800), rng.randrange(0xe000, 0x10000), rng.randrange(0x10000, 0x20000)]))
    c = rng.randrange(0x110000)
    return "\ufffd" if 0xD800 <= c < 0xE000 else chr(c)


def text(rng):
    if rng.random() < 0.002:
        return rng.choice(WORDS + SPACES + EMOJI) * rng.randint(50, 300)
    s = "".join(pieces(rng) for _ in range(rng.randint(0, 14)))
    if rng.random() < 0.1:
        s = unicodedata.normalize(rng.choice(["NFC", "NFD", "NFKC", "NFKD"]), s)
    return s


class Family:
    def __init__(self, name, flags, encode, decode):
        self.name, self.flags, self.encode, self.decode = name, flags, encode, decode


def families(folder, data):
    gpt2 = ["--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", f"{data}/gpt2-vocab.json", "--merge-file", f"{data}/gpt2-merges.txt"]
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    t = Tokenizer(models.BPE.from_file(f"{data}/gpt2-vocab.json", f"{data}/gpt2-merges.txt"))
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    yield hugging("GPT2BPETokenizer", gpt2, t)
    for path in sorted(glob.glob(f"{folder}/*/tokenizer.json")):
        dir = os.path.dirname(path)
        yield hugging("hf/" + os.path.basename(dir), ["--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", dir], Tokenizer.from_file(path))
    for path in sorted(glob.glob(f"{folder}/*.model")):
        m = sentencepiece.SentencePieceProcessor(model_file=path)
        yield Family(os.path.basename(path)[:-6], ["--tokenizer-type", "Llama2Tokenizer", "--tokenizer-model", path],
                     lambda texts, m=m: [m.encode(s) for s in texts], lambda ids, m=m: m.decode(ids))
    for pattern in ("v1", "v2"):
        yield tik(f"{folder}/ranks.tik.json", pattern)


def hugging(name, flags, t):
    return Family(name, flags, lambda texts: [e.ids for e in t.encode_batch(texts)], lambda ids: t.decode_batch(ids, skip_special_tokens=False))


V1 = r"[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
V2 = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
      r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def tik(path, pattern):
    """As Megatron's TikTokenTokenizer builds it."""
    import base64
    ranks = {base64.b64decode(x["token_bytes"]): x["rank"] + 1000 for x in json.load(open(path))}
    special = ["<unk>", "<s>", "</s>", "<mask>", "<pad>", "<cls>", "<sep>"]
    special += [f"<SPECIAL_{i}>" for i in range(len(special), 1000)]
    e = tiktoken.Encoding(name="x", pat_str=V1 if pattern == "v1" else V2, mergeable_ranks=ranks, special_tokens={s: i for i, s in enumerate(special)})
    flags = ["--tokenizer-type", "TikTokenizer", "--tokenizer-model", path, "--tiktoken-pattern", pattern, "--vocab-size", str(len(ranks) + 1000)]
    return Family("tik-" + pattern, flags, lambda texts: [e.encode(s, allowed_special="all") for s in texts], lambda ids: [e.decode(i) for i in ids])


def run(monotron, flags, lines):
    r = subprocess.run([monotron, "tokenize", *flags], input="\n".join(lines) + "\n", capture_output=True, text=True, encoding="utf-8")
    if r.returncode:
        sys.exit(f"{' '.join(flags)}: {r.stderr}")
    return [json.loads(line) for line in r.stdout.split("\n") if line]


def main():
    monotron, folder, data, count, seed, *only = sys.argv[1:]
    rng = random.Random(int(seed))
    texts = [text(rng) for _ in range(int(count))]
    texts += ["".join(pieces(rng) for _ in range(30000)) for _ in range(2)]  # sums of scores grow long
    bad = 0
    for f in families(folder, data):
        if only and f.name not in only:
            continue
        want = f.encode(texts)
        got = run(monotron, [*f.flags, "--json-key", "text"], [json.dumps({"text": s}) for s in texts])
        wrong = [i for i in range(len(texts)) if got[i] != list(want[i])]
        # Any ids, not only those of a text: parts of characters, special tokens in the middle.
        shuffled = [rng.sample(list(ids), len(ids)) if rng.random() < 0.3 else list(ids) for ids in want]
        back = f.decode(shuffled)
        ours = run(monotron, [*f.flags, "--decode"], [json.dumps(ids) for ids in shuffled])
        undone = [i for i in range(len(texts)) if ours[i] != back[i]]
        print(f"{f.name:24} {len(texts)} strings, {sum(map(len, want))} ids: {len(wrong)} encoded otherwise, {len(undone)} decoded otherwise", flush=True)
        for i in wrong[:3]:
            print("   ", ascii(texts[i])[:300], "\n      ours  ", str(got[i])[:200], "\n      theirs", str(list(want[i]))[:200])
        for i in undone[:3]:
            print("   ", str(shuffled[i])[:200], "\n      ours  ", ascii(ours[i])[:200], "\n      theirs", ascii(back[i])[:200])
        bad += len(wrong) + len(undone)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

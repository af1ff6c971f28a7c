"""Trains one tokenizer of each style with the originals' own trainers.

usage: models.py FOLDER GPT2-VOCAB TEXT...
Writes FOLDER/<name>/tokenizer.json (package tokenizers), FOLDER/<name>.model
(package sentencepiece) and FOLDER/<name>.tik.json (ranks in Megatron's form).
"""
import base64
import json
import os
import sys

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"]


def split(pattern, behavior="isolated"):
    return pre_tokenizers.Split(Regex(pattern), behavior)


def bytes_after(*splits):
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def byte_bpe(pre, normalizer=None, **options):
    t = Tokenizer(models.BPE(**options))
    t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
    if normalizer:
        t.normalizer = normalizer
    return t, {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}


def metaspace_bpe(normalizer, pre, fallback=True):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=fallback))
    if normalizer:
        t.normalizer = normalizer
    if pre:
        t.pre_tokenizer = pre
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokens = ["<unk>", "<s>", "</s>"] + ([f"<0x{b:02X}>" for b in range(256)] if fallback else [])
    return t, {"special_tokens": tokens, "limit_alphabet": 400}


def families():
    level = pre_tokenizers.ByteLevel
    yield "gpt2", byte_bpe(level(add_prefix_space=False))
    yield "gpt2-prefix", byte_bpe(level(add_prefix_space=True))
    yield "llama3", byte_bpe(bytes_after(split(GPT4 % "{1,3}")), ignore_merges=True)
    yield "qwen2", byte_bpe(bytes_after(split(GPT4 % "")), normalizers.NFC())
    yield "o200k", byte_bpe(bytes_after(split(O200K)))
    yield "bloom", byte_bpe(bytes_after(split(BLOOM)))
    yield "deepseek", byte_bpe(bytes_after(*map(split, DEEPSEEK)))
    yield "starcoder", byte_bpe(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), level(add_prefix_space=False)]))
    yield "llama2", metaspace_bpe(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None)
    yield "mistral", metaspace_bpe(None, pre_tokenizers.Metaspace("▁", "first", False))
    yield "metaspace", metaspace_bpe(normalizers.NFKC(), pre_tokenizers.Metaspace("▁", "always", True), False)
    yield "lower", metaspace_bpe(
        normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents(), normalizers.Strip()]),
        pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Digits(True)]), False)
    yield "words", metaspace_bpe(
        normalizers.Sequence([normalizers.NFKD(), normalizers.Replace(Regex(r"[\s]{2,}"), " "), normalizers.Nmt()]),
        pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("merged_with_previous")]), True)
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizers.NFC(), pre_tokenizers.WhitespaceSplit(), decoders.BPEDecoder("</w>")
    yield "suffix", (t, {"special_tokens": ["<unk>"], "end_of_word_suffix": "</w>", "limit_alphabet": 300})


ADDED = [AddedToken("<|endoftext|>", special=True), AddedToken("<|im_start|>", special=True, rstrip=True),
         AddedToken("<mask>", special=True, lstrip=True), AddedToken("word", single_word=True, normalized=False),
         AddedToken("Straße", normalized=True), AddedToken("  ", normalized=False), AddedToken("<|im_start|>x", normalized=False)]


def train_hf(folder, texts, size=3000, only=None):
    for name, (t, options) in families():
        if only and name not in only:
            continue
        t.train(texts, trainers.BpeTrainer(vocab_size=size, show_progress=False, **options))
        t.add_tokens(ADDED)
        if name in ("llama2", "llama3", "mistral"):
            bos = "<s>" if t.token_to_id("<s>") is not None else "<|endoftext|>"
            t.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, t.token_to_id(bos))])
        save(t, folder, name)
    for name, fallback in (("unigram", False), ("unigram-bytes", True)):
        if only and name not in only:
            continue
        save(unigram(fallback, texts, size * 2 // 3), folder, name)


def unigram(fallback, texts, size):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.train(texts, trainers.UnigramTrainer(vocab_size=size, show_progress=False, unk_token="<unk>", special_tokens=["<unk>", "</s>"]))
    if fallback:
        spec = json.loads(t.to_str())
        spec["model"]["vocab"] += [[f"<0x{b:02X}>", -15.0 - b / 1000] for b in range(256)]
        spec["model"]["byte_fallback"] = True
        spec["added_tokens"] = []
        spec["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {
            "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}]}
        t = Tokenizer.from_str(json.dumps(spec))
    return t


def save(t, folder, name):
    os.makedirs(f"{folder}/{name}", exist_ok=True)
    t.save(f"{folder}/{name}/tokenizer.json", pretty=False)


SENTENCEPIECE = {
    "sp-bpe": {"model_type": "bpe", "byte_fallback": True, "split_digits": True, "normalization_rule_name": "identity",
               "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True},
    "sp-bpe-nfkc": {"model_type": "bpe", "user_defined_symbols": ["<sep>", "Straße", "▁▁"]},
    "sp-bpe-suffix": {"model_type": "bpe", "treat_whitespace_as_suffix": True, "normalization_rule_name": "nfkc_cf"},
    "sp-unigram": {"model_type": "unigram"},
    "sp-unigram-bytes": {"model_type": "unigram", "byte_fallback": True, "add_dummy_prefix": False, "user_defined_symbols": ["<sep>", "word"],
                         "pad_id": 3, "normalization_rule_name": "nmt_nfkc_cf"},
    "sp-unigram-identity": {"model_type": "unigram", "normalization_rule_name": "identity", "remove_extra_whitespaces": False},
}


def train_sentencepiece(folder, texts, size=2000, only=None):
    for name, options in SENTENCEPIECE.items():
        if only and name not in only:
            continue
        sentencepiece.SentencePieceTrainer.train(
            input=texts, model_prefix=f"{folder}/{name}", vocab_size=size, num_threads=1, minloglevel=2,
            character_coverage=0.999, hard_vocab_limit=False, **options)
    if not only:
        train_t5(folder)


def train_t5(folder):
    # The same table, used by package tokenizers' Precompiled normalizer.
    from sentencepiece import sentencepiece_model_pb2 as pb  # needs protobuf
    m = pb.ModelProto()
    m.ParseFromString(open(f"{folder}/sp-unigram.model", "rb").read())
    t = Tokenizer(models.Unigram([(p.piece, p.score) for p in m.pieces], unk_id=0, byte_fallback=False))
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(m.normalizer_spec.precompiled_charsmap), normalizers.Strip(False, True),
                                         normalizers.Replace(Regex(" {2,}"), "▁")])
    t.pre_tokenizer, t.decoder = pre_tokenizers.Metaspace("▁", "always"), decoders.Metaspace("▁", "always")
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    save(t, folder, "t5")


def write_ranks(folder, vocab_json):
    """Ranks in Megatron's form from a byte-level vocabulary, bytes first."""
    spelling = {c: b for b, c in byte_spelling().items()}
    tokens = sorted((i, bytes(spelling[c] for c in t)) for t, i in json.load(open(vocab_json)).items() if all(c in spelling for c in t))
    ordered = [bytes([b]) for b in range(256)] + [t for _, t in tokens if len(t) > 1]
    with open(f"{folder}/ranks.tik.json", "w") as out:
        json.dump([{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": t.decode(errors="replace")} for i, t in enumerate(ordered)], out)


def byte_spelling():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {b: chr(b) for b in plain}
    for n, b in enumerate(b for b in range(256) if b not in table):
        table[b] = chr(256 + n)
    return table


if __name__ == "__main__":
    folder, vocab, *texts = sys.argv[1:]
    train_hf(folder, texts)
    write_ranks(folder, vocab)
    train_sentencepiece(folder, texts)

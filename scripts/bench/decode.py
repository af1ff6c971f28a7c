"""Decoding of GPT-2 124M on a CPU: `monotron serve`, transformers' generate and llama.cpp by turns, on one set of weights.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch transformers llama-cpp-python gguf
    /tmp/venv/bin/python scripts/bench/decode.py --vocab gpt2-vocab.json --merges gpt2-merges.txt --dtype f32

Weights are drawn, so every program reads as many bytes as of trained ones. A rate is that of the tokens
after the first: the time of an answer of --tokens less that of an answer of one. A prompt of 512 tokens, never seen before, is timed
until its first new token. Each round asks every program once and tells its rates, medians are printed at the end. Right before and after each answer
to one text the threads read memory (torch.sum over 500 MB): what a shared machine gives changes within seconds, so a program's share of
the memory's rate is the median of each round's own. A prompt stands beside the forward pass of `monotron bench` on 512 tokens, which makes the
head's gradients too. llama.cpp is left out where its package is not there. Programs are told to use --threads threads.
"""
import argparse
import http.client
import json
import os
import statistics
import subprocess
import tempfile
import time

from modules import need

need("numpy", "torch", "transformers")
import numpy as np
import torch
import transformers

LONG = 512


def prompts(batch):
    """Texts of 8 tokens that differ in the last."""
    return [[464, 2068, 7586, 21831, 18045, 625, 262, 1000 + i] for i in range(batch)]


def long_prompt(n):
    return [[(7919 * i + 104729 * (n + 1)) % 50000 for i in range(LONG)]]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--vocab", required=True)
    p.add_argument("--merges", required=True)
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    p.add_argument("--tokens", type=int, default=65)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--monotron", default="bin/monotron")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as work:
        model, tokenizer = weights(work, a)
        programs = {"monotron serve": Served(work, a), f"transformers {transformers.__version__}": Transformers(model, tokenizer)}
        try:
            import llama_cpp
            programs[f"llama.cpp ({llama_cpp.__version__})"] = Llama(model, tokenizer, work, a)
        except ImportError as e:
            print(f"llama.cpp is left out: {e}")
        try:
            measure(programs, model, a)
        finally:
            programs["monotron serve"].server.terminate()


def weights(work, a):
    """A drawn GPT-2 124M and its tokenizer as a folder of transformers; the model in the type asked for."""
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(eos_token_id=None, bos_token_id=None)).eval()
    model.save_pretrained(work)
    with open(a.vocab) as v, open(a.merges) as m:
        merges = [tuple(line.split()) for line in m if not line.startswith("#version") and line.strip()]
        tokenizer = transformers.GPT2Tokenizer(vocab=json.load(v), merges=merges)
    tokenizer.save_pretrained(work)
    return model.to(torch.bfloat16) if a.dtype == "bf16" else model, tokenizer


def measure(programs, model, a):
    size = sum(x.numel() * x.element_size() for x in model.parameters()) - model.transformer.wpe.weight.nbytes
    rates, shares, texts, reads, forward = {}, {}, {}, [], []
    for n in range(a.rounds):
        forward.append(training_forward(a))
        for name, program in programs.items():
            for batch in program.batches:
                before = read_rate()
                first, _ = program.answer(1, prompts(batch))
                whole, text = program.answer(a.tokens, prompts(batch))
                rates.setdefault((name, batch), []).append(batch * (a.tokens - 1) / (whole - first))
                texts[name] = text
                if batch == 1:
                    reads.append((before + read_rate()) / 2)
                    shares.setdefault(name, []).append(rates[name, 1][-1] * size / reads[-1])
            rates.setdefault((name, "prompt"), []).append(LONG / program.answer(1, long_prompt(n))[0])
        print(f"round {n + 1}: tokens/s: " + ", ".join(f"{name} {what} {r[-1]:.1f}" for (name, what), r in rates.items()) +
              "; of the memory's rate: " + ", ".join(f"{name} {r[-1]:.2f}" for name, r in shares.items()), flush=True)
    print(f"GPT-2 124M, {a.dtype}, {a.threads} threads, {a.tokens} tokens after 8, median of {a.rounds} rounds")
    print(f"memory was read at {min(reads) / 1e9:.1f} to {max(reads) / 1e9:.1f} GB/s, {size / 1e6:.0f} MB of weights")
    alone = statistics.median(rates["monotron serve", 1])
    trains = statistics.median(forward)
    print(f"training's forward pass of {LONG} tokens: {trains:.0f} tokens/s")
    for (name, what), r in rates.items():
        m = statistics.median(r)
        said = {1: f"{statistics.median(shares[name]):4.2f} of the memory's rate", "prompt": f"{m / trains:4.2f} of the forward pass"}.get(what, "")
        print(f"{name:32} {'prompt' if what == 'prompt' else f'batch {what}':8}  {m:8.1f} tokens/s  {min(r):8.1f} to {max(r):<8.1f}  {m / alone:6.2f} of ours at batch 1  {said}")
    ours = texts.pop("monotron serve")
    for name, text in texts.items():
        alike = len(os.path.commonprefix([text, ours]))
        print(f"{name}: " + ("the same greedy text as ours" if text == ours else f"another greedy text than ours after {alike} of {len(ours)} characters"))


def training_forward(a):
    flag = ["--bf16"] if a.dtype == "bf16" else []
    r = subprocess.run([a.monotron, "bench", "step", "--model", "gpt2-124m", "--micro-batch-size", "1", "--seq-length", str(LONG), "--steps", "3",
                        "--cpu-threads", str(a.threads), "--json", *flag], capture_output=True, check=True)
    return LONG / json.loads(r.stdout)["phase_seconds"]["forward"]


def read_rate(seconds=0.5):
    """Bytes a second, on average over as long as an answer takes: what others take of the memory counts here as it does there."""
    x = torch.ones(125_000_000)
    x.sum()
    n, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        x.sum()
        n += 1
    return n * x.nbytes / (time.perf_counter() - start)


class Served:
    batches = (1, 16)

    def __init__(self, folder, a):
        self.port = 18765
        log = open(os.path.join(folder, "serve.log"), "w")
        started = time.perf_counter()
        self.server = subprocess.Popen([a.monotron, "serve", "--load", folder, "--port", str(self.port), "--served-model-name", "m", "--max-num-seqs", "16",
                                        "--kv-cache-memory", "512", "--cpu-threads", str(a.threads), "--bf16" if a.dtype == "bf16" else "--fp32"], stdout=log, stderr=log)
        while True:
            try:
                self.answer(1, prompts(1))
                break
            except (OSError, AssertionError):
                if self.server.poll() is not None:
                    raise SystemExit(open(log.name).read())
                time.sleep(0.02)
        print(f"monotron serve: {time.perf_counter() - started:.2f} s from its start to its first answer")

    def answer(self, tokens, prompts):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        start = time.perf_counter()
        c.request("POST", "/v1/completions", json.dumps({"model": "m", "prompt": prompts, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}),
                  {"Content-Type": "application/json"})
        r = c.getresponse()
        body = json.loads(r.read())
        assert r.status == 200, body
        took = time.perf_counter() - start
        assert body["usage"]["completion_tokens"] == tokens * len(prompts), body["usage"]
        return took, body["choices"][0]["text"]


class Transformers:
    batches = (1, 16)

    def __init__(self, model, tokenizer):
        self.model, self.tokenizer = model, tokenizer

    def answer(self, tokens, prompts):
        x = torch.tensor(prompts)
        start = time.perf_counter()
        with torch.inference_mode():
            y = self.model.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0)
        return time.perf_counter() - start, self.tokenizer.decode(y[0, len(prompts[0]):])


class Llama:
    """One text, tokens chosen from llama.cpp's logits by numpy: no sampler, no text."""
    batches = (1,)

    def __init__(self, model, tokenizer, work, a):
        import gguf
        import llama_cpp
        path = os.path.join(work, "model.gguf")
        to_gguf(gguf, model, path, work, a.dtype)
        self.api, self.tokenizer, self.vocabulary = llama_cpp, tokenizer, model.config.vocab_size
        self.llama = llama_cpp.Llama(path, n_ctx=1024, n_batch=512, n_threads=a.threads, n_threads_batch=a.threads, verbose=False)

    def answer(self, tokens, prompts):
        ids, step = [], prompts[0]
        self.llama.reset()
        start = time.perf_counter()
        for _ in range(tokens):
            self.llama.eval(step)
            logits = self.api.llama_get_logits(self.llama.ctx)
            step = [int(np.ctypeslib.as_array(logits, shape=(self.vocabulary,)).argmax())]
            ids += step
        return time.perf_counter() - start, self.tokenizer.decode(ids)


def to_gguf(gguf, model, path, work, dtype):
    """The model as llama.cpp's convert_hf_to_gguf.py writes GPT-2: matrices as (out, in), norms and biases in f32."""
    c, w = model.config, gguf.GGUFWriter(path, "gpt2")
    w.add_block_count(c.n_layer)
    w.add_context_length(c.n_positions)
    w.add_embedding_length(c.n_embd)
    w.add_feed_forward_length(4 * c.n_embd)
    w.add_head_count(c.n_head)
    w.add_layer_norm_eps(c.layer_norm_epsilon)
    with open(os.path.join(work, "tokenizer.json")) as f:
        bpe = json.load(f)["model"]
    texts = sorted(bpe["vocab"], key=bpe["vocab"].get)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(texts)
    w.add_token_types([gguf.TokenType.NORMAL] * len(texts))
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in bpe["merges"]])

    def add(name, tensor, transpose=False):
        x = tensor.detach().float()
        x = (x.T.contiguous() if transpose else x).numpy()
        if x.ndim == 2 and dtype == "bf16":
            w.add_tensor(name, gguf.quantize(x, gguf.GGMLQuantizationType.BF16), raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            w.add_tensor(name, x)

    t = model.transformer
    add("token_embd.weight", t.wte.weight)
    add("position_embd.weight", t.wpe.weight)
    add("output.weight", t.wte.weight)
    for i, b in enumerate(t.h):
        for name, m in (("attn_norm", b.ln_1), ("ffn_norm", b.ln_2)):
            add(f"blk.{i}.{name}.weight", m.weight)
            add(f"blk.{i}.{name}.bias", m.bias)
        for name, m in (("attn_qkv", b.attn.c_attn), ("attn_output", b.attn.c_proj), ("ffn_up", b.mlp.c_fc), ("ffn_down", b.mlp.c_proj)):
            add(f"blk.{i}.{name}.weight", m.weight, transpose=True)
            add(f"blk.{i}.{name}.bias", m.bias)
    add("output_norm.weight", t.ln_f.weight)
    add("output_norm.bias", t.ln_f.bias)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()

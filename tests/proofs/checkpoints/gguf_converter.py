"""usage: gguf_converter.py LLAMA_CPP BINARY WORK [FAMILY..]: see gguf_converter.sh."""
import json, logging, os, shutil, subprocess, sys, traceback, warnings
from pathlib import Path

llama_cpp, binary, work, *wanted = sys.argv[1:]
warnings.filterwarnings("ignore")
sys.path.insert(0, llama_cpp)
sys.path.insert(1, os.path.join(llama_cpp, "gguf-py"))
os.environ["HF_HUB_OFFLINE"] = os.environ["TQDM_DISABLE"] = "1"
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
import conversion
import gguf
from conversion.base import ModelBase, ModelType, get_model_architecture

load_hparams = ModelBase.load_hparams
logging.disable(logging.CRITICAL)
transformers.logging.set_verbosity_error()
failed = 0
small = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 128, "tie_word_embeddings": False}
yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 32.0, "beta_slow": 1.0}
latent = {"num_key_value_heads": 4, "kv_lora_rank": 32, "q_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12, "n_routed_experts": 8,
          "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1,
          "routed_scaling_factor": 2.5, "norm_topk_prob": True, "num_hidden_layers": 3, "scoring_func": "sigmoid"}
mscale = {**yarn, "rope_theta": 10000.0, "mscale": 1.0, "mscale_all_dim": 1.0}
delta = {"num_hidden_layers": 4, "head_dim": 32, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
         "layer_types": ["linear_attention"] * 3 + ["full_attention"]}
mrope = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
mixture = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48}
slides = ["sliding_attention"] * 3 + ["full_attention"]
gemma4 = {"num_hidden_layers": 4, "head_dim": 16, "global_head_dim": 32, "sliding_window": 8, "layer_types": slides, "final_logit_softcapping": 30.0, "tie_word_embeddings": True,
          "vocab_size_per_layer_input": 96, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0}
scans = {"num_hidden_layers": 4, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 2, "mamba_d_conv": 4, "mamba_chunk_size": 256, "num_local_experts": 0, "num_experts_per_tok": 0,
         "shared_intermediate_size": 96, "embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2, "logits_scaling": 4.0,
         "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"]}
hybrid = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 128, "tie_word_embeddings": False,
          "mamba_num_heads": 4, "mamba_head_dim": 32, "n_groups": 2, "ssm_state_size": 16, "conv_kernel": 4, "chunk_size": 128, "time_step_min": 1e-30}
mixed = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 48, "routed_scaling_factor": 2.5}
alone = {"vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 16, "n_groups": 2, "state_size": 16, "conv_kernel": 4, "expand": 2, "chunk_size": 256}

# Models: transformers' class, its settings, and which further arguments the converter gets.
models = {
    "gpt-oss": ("GptOss", {**small, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8, "num_hidden_layers": 4, "intermediate_size": 64,
                           "layer_types": ["sliding_attention", "full_attention"] * 2, "rope_parameters": {**yarn, "rope_theta": 150000.0, "truncate": False}}),
    "qwen3_5": ("Qwen3_5Text", {**small, **delta, "rope_parameters": mrope}),
    "qwen3_5-tied": ("Qwen3_5Text", {**small, **delta, "tie_word_embeddings": True, "linear_num_value_heads": 2, "rope_parameters": mrope}),
    "qwen3_5_moe": ("Qwen3_5MoeText", {**small, **delta, **mixture, "rope_parameters": mrope}),
    "qwen3_next": ("Qwen3Next", {**small, **delta, **mixture, "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}}),
    "lfm2": ("Lfm2", {**small, "num_hidden_layers": 4, "layer_types": ["conv", "conv", "full_attention", "conv"], "tie_word_embeddings": True, "conv_L_cache": 3, "block_multiple_of": 16}),
    "deepseek_v3": ("DeepseekV3", {**small, **latent, "rope_parameters": mscale, "num_nextn_predict_layers": 0}),
    "deepseek_v3-lite": ("DeepseekV3", {**small, **latent, "q_lora_rank": None, "num_hidden_layers": 26, "num_nextn_predict_layers": 0}),
    "deepseek_v2": ("DeepseekV2", {**small, **latent, "q_lora_rank": None, "norm_topk_prob": False, "topk_method": "greedy", "scoring_func": "softmax", "num_hidden_layers": 27, "n_group": 1, "rope_parameters": {**mscale, "mscale": 0.707, "mscale_all_dim": 0.707}}),
    "glm4_moe_lite": ("Glm4MoeLite", {**small, **latent, "n_group": 1, "num_nextn_predict_layers": 0}),
    "ministral3": ("Ministral3", {**small, "head_dim": 16, "rope_parameters": {**yarn, "type": "yarn", "rope_theta": 1e6, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1}}),
    "olmo3": ("Olmo3", {**small, "num_hidden_layers": 4, "sliding_window": 8, "layer_types": slides}),
    "olmo3-yarn": ("Olmo3", {**small, "num_hidden_layers": 4, "sliding_window": 8, "layer_types": slides, "rope_parameters": {
        "full_attention": {**yarn, "rope_theta": 5e5, "factor": 8.0, "attention_factor": 1.2079441541679836}, "sliding_attention": {"rope_type": "default", "rope_theta": 5e5}}}),
    "gemma4": ("Gemma4Text", {**small, **gemma4, "attention_k_eq_v": True, "num_global_key_value_heads": 1}),
    "gemma4-small": ("Gemma4Text", {**small, **gemma4, "num_hidden_layers": 8, "layer_types": slides * 2, "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 4, "use_double_wide_mlp": True}),
    "gemma4-moe": ("Gemma4Text", {**small, **gemma4, "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32}),
    "cohere": ("Cohere", {**small, "tie_word_embeddings": True, "logit_scale": 0.25}),
    "falcon-7b": ("Falcon", {"vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "multi_query": True, "num_kv_heads": 1, "parallel_attn": True, "bias": False,
                             "new_decoder_architecture": False, "alibi": False}),
    "falcon-40b": ("Falcon", {"vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_kv_heads": 2, "new_decoder_architecture": True, "bias": False,
                              "alibi": False}),
    "exaone4": ("Exaone4", {**small, "num_hidden_layers": 4, "sliding_window": None, "layer_types": ["full_attention"] * 4}),
    "hunyuan": ("HunYuanDenseV1", {**small, "head_dim": 16}),
    "minimax_m2": ("MiniMaxM2", {**small, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "rotary_dim": 8, "scoring_func": "sigmoid"}),
    "glm4_moe": ("Glm4Moe", {**small, "head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1, "first_k_dense_replace": 1,
                             "num_nextn_predict_layers": 0, "use_qk_norm": True}),
    "mamba2": ("Mamba2", alone),
    "mamba2-tied": ("Mamba2", {**alone, "tie_word_embeddings": True, "n_groups": 1}),
    "granite4-h": ("GraniteMoeHybrid", {**small, **scans, "tie_word_embeddings": True}),
    "granite4-h-moe": ("GraniteMoeHybrid", {**small, **scans, "mamba_n_groups": 1, "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 32, "shared_intermediate_size": 48, "attention_bias": True}),
    "granite4-dense": ("GraniteMoeHybrid", {**small, **scans, "layer_types": ["full_attention"] * 4, "position_embedding_type": "rope"}),
    "nemotron_h": ("NemotronH", {**hybrid, "layers_block_type": ["linear_attention", "mlp", "full_attention", "mlp", "linear_attention"]}),
    "nemotron_h-moe": ("NemotronH", {**hybrid, **mixed, "layers_block_type": ["linear_attention", "moe", "full_attention", "linear_attention", "moe"]}),
    "nemotron_h-latent": ("NemotronH", {**hybrid, **mixed, "moe_latent_size": 32, "layers_block_type": ["linear_attention", "moe", "full_attention"]}),
    "nemotron_h-groups": ("NemotronH", {**hybrid, **mixed, "n_routed_experts": 8, "n_group": 4, "topk_group": 2, "layers_block_type": ["linear_attention", "moe", "full_attention"]}),
    "llama": ("Llama", small),
    "qwen3-yarn": ("Qwen3", {**small, "head_dim": 16, "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 1e6}}),
}


def retold(name, folder):
    """The config.json as those who publish such models write it: the converter reads no other words."""
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    if name.startswith("granite4"):
        config["layer_types"] = [{"linear_attention": "mamba", "full_attention": "attention"}[kind] for kind in config["layer_types"]]
    if name.startswith("nemotron_h"):
        config["hybrid_override_pattern"] = "".join({"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}[kind] for kind in config["layers_block_type"])
        config["num_hidden_layers"] = len(config["layers_block_type"])
    if name == "nemotron_h":  # a number of experts per token is a mixture to the converter
        for key in ("n_routed_experts", "num_experts_per_tok", "n_shared_experts", "moe_intermediate_size", "moe_shared_expert_intermediate_size", "n_group", "topk_group", "norm_topk_prob", "routed_scaling_factor"):
            config.pop(key)
    json.dump(config, open(path, "w"))


def check(ok, text):
    global failed
    failed += not ok
    print(("ok      " if ok else "FAILED  ") + text, flush=True)


def monotron(*words):
    r = subprocess.run([binary, *map(str, words)], capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {r.stderr.strip()[-600:]}")


def make(name, folder):
    """A model of random values, as transformers saves it."""
    kind, settings = models[name]
    torch.manual_seed(sum(map(ord, name)))
    config = getattr(transformers, kind + "Config")(**json.loads(json.dumps(settings)))
    model = getattr(transformers, kind.removesuffix("Text") + "ForCausalLM")(config)
    with torch.no_grad():
        for _, t in (*model.named_parameters(), *model.named_buffers()):
            if t.is_floating_point() and "inv_freq" not in _ and "embed_scale" not in _:
                t.copy_(torch.randn(t.shape) * 0.5)
    model = model.to(torch.bfloat16)
    model.save_pretrained(folder)
    retold(name, folder)


def convert(folder, kind, out, further=False):
    """llama.cpp's own converter, without a tokenizer."""
    if os.path.basename(folder) == "nemotron_h":  # as of a model whose class transformers lacks, which adds numbers of experts to those without any
        ModelBase.load_hparams = staticmethod(lambda d, is_mistral_format: json.load(open(os.path.join(d, "config.json"))))
    else:
        ModelBase.load_hparams = load_hparams
    hparams = ModelBase.load_hparams(Path(folder), False)
    cls = conversion.get_model_class(get_model_architecture(hparams, ModelType.TEXT))
    for c in (cls, *(v for v in vars(cls).values() if isinstance(v, type))):  # Mistral's class has others inside
        for c in c.__mro__:
            if "set_vocab" in vars(c) and "impl" not in getattr(c, "__annotations__", {}):
                c.set_vocab = lambda self: self._set_vocab_none()
    if cls.supports_mtp_export:
        cls.no_mtp = not further
    types = {"f32": gguf.LlamaFileType.ALL_F32, "bf16": gguf.LlamaFileType.MOSTLY_BF16, "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}
    Path(folder, "tokenizer.json").write_text('{"model": {"vocab": {%s}}, "added_tokens": []}' % ",".join(f'"{i}": {i}' for i in range(96)))
    try:
        with torch.inference_mode():
            cls(Path(folder), types[kind], Path(out)).write()
    finally:
        os.remove(os.path.join(folder, "tokenizer.json"))


# What says nothing of the model, or of what follows from the file's name.
unsaid = ("general.name", "general.size_label", "general.finetune", "general.basename", "general.version", "general.sampling", "GGUF.")


def contents(path):
    r = gguf.GGUFReader(path)
    keys = {f.name: (f.types, f.contents()) for f in r.fields.values() if not f.name.startswith(unsaid)}
    return keys, {t.name: (t.tensor_type.name, [int(n) for n in t.shape], t.data) for t in r.tensors}


def near(a, b):
    """The digits in which exponentials of two libraries differ."""
    return a.dtype == np.float32 and bool(np.all(np.abs(a - b) <= 2.5e-7 * np.abs(a)))


def compare(name, kind, theirs, ours):
    (keys, tensors), (k, t) = contents(theirs), contents(ours)
    wrong = [f"{key}: {keys.get(key)} and ours {k.get(key)}" for key in sorted(keys.keys() | k.keys()) if keys.get(key) != k.get(key)]
    for n in sorted(tensors.keys() | t.keys()):
        a, b = tensors.get(n), t.get(n)
        if not a or not b or a[:2] != b[:2]:
            wrong.append(f"{n}: {a and a[:2]} and ours {b and b[:2]}")
        elif a[2].tobytes() != b[2].tobytes() and not (n.endswith("ssm_a") and near(a[2], b[2])):
            wrong.append(f"{n}: {np.sum(a[2] != b[2])} of {a[2].size} elements differ")
    check(not wrong, f"{name} {kind}: {len(keys)} keys and {len(tensors)} tensors are those of llama.cpp's converter" + "".join("\n          " + w for w in wrong[:40]))


def logits(folder, ids):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return model(ids).logits, getattr(model.config, "max_position_embeddings", None)


def back(name, source, file):
    """A file of the converter as a folder again: the same weights, and a config.json that is the same model to transformers."""
    folder = file + ".hf"
    shutil.rmtree(folder, ignore_errors=True)
    monotron("convert", "--input", file, "--to", "hf", "--dtype", "bf16", "--output", folder)
    a, b = (load_file(os.path.join(f, "model.safetensors")) for f in (source, folder))
    wrong = [f"{n} is in one folder alone" for n in sorted(a.keys() ^ b.keys())]
    wrong += [f"{n} differs" for n in sorted(a.keys() & b.keys()) if a[n].shape != b[n].shape or not torch.equal(a[n].bfloat16(), b[n].bfloat16())]
    ids = torch.randint(0, 96, (1, 100), generator=torch.Generator().manual_seed(1))
    (x, m), (y, n) = logits(source, ids), logits(folder, ids)
    off = float((x - y).abs().max() / x.abs().max())
    if gguf.GGUFReader(file).fields["general.architecture"].contents() in ("granitehybrid", "mamba2", "nemotron_h", "nemotron_h_moe"):  # of models that encode no positions
        m = 1 << 20
    if not off <= 1e-6 or m != n:
        wrong.append(f"logits differ by {off:.1e} of the largest; {m} and {n} positions")
    check(not wrong, f"{name}: {len(a)} weights, and logits to {off:.0e}, come back from the converter's file" + "".join("\n          " + w for w in wrong[:40]))


def fours():
    """Experts in MXFP4 stay in it, in the converter's bytes."""
    source, folder = os.path.join(work, "gpt-oss"), os.path.join(work, "gpt-oss-mxfp4")
    shutil.rmtree(folder, ignore_errors=True)
    monotron("convert", "--input", source, "--to", "hf", "--quantize", "mxfp4", "--dtype", "bf16", "--output", folder)
    theirs, ours = folder + ".theirs.gguf", folder + ".gguf"
    convert(folder, "bf16", theirs)
    if os.path.exists(ours):
        os.remove(ours)
    monotron("convert", "--input", folder, "--to", "gguf", "--output", ours)
    compare("gpt-oss-mxfp4", "bf16 with MXFP4", theirs, ours)


def ahead(name, settings, layer, to, further):
    """Layers that predict further tokens: we leave them out as --no-nextn does, and out of the converter's files with them."""
    source, folder = os.path.join(work, name), os.path.join(work, name + "-ahead")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    config = json.load(open(os.path.join(folder, "config.json")))
    json.dump({**config, **settings}, open(os.path.join(folder, "config.json"), "w"))
    tensors = load_file(os.path.join(source, "model.safetensors"))
    more = {n.replace(a, b): t.clone() for a, b in zip(layer.split(), to.split()) for n, t in tensors.items() if n.startswith(a)}
    width = config["hidden_size"]
    more |= {n: torch.randn(width, 2 * width if n.endswith(("fc.weight", "eh_proj.weight")) else 1).squeeze(-1).bfloat16() for n in further}
    save_file({**tensors, **more}, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    ours = folder + ".gguf"
    for file in (ours, folder + ".without.gguf", folder + ".with.gguf"):
        if os.path.exists(file):
            os.remove(file)
    monotron("convert", "--input", folder, "--to", "gguf", "--type", "bf16", "--output", ours)
    convert(folder, "bf16", folder + ".without.gguf")
    compare(name + " with further layers", "bf16", folder + ".without.gguf", ours)
    convert(folder, "bf16", folder + ".with.gguf", True)
    n, m = (len(gguf.GGUFReader(folder + f).tensors) for f in (".with.gguf", ".without.gguf"))
    check(n > m, f"{name}: the converter's file has {n} tensors, {m} without further layers")
    back(name + " with further layers", source, folder + ".with.gguf")


def gemma4_words():
    """Gemma 4's kind of tokenizer: a small one of that form, by the converter's program."""
    source, folder, blank = os.path.join(work, "gemma4"), os.path.join(work, "gemma4-words"), "\u2581"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    named, inner, merges = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|turn>", "<turn|>", "<|channel>"], ["<unused0>", "\n\n", blank * 2], [("t", "h"), ("th", "e"), (blank, "the"), ("i", "n")]
    words = named + inner + [f"<0x{b:02X}>" for b in (9, 10, 65, 226)] + [blank, "\n", *"abcdefghijklmnopqrstuvwxyz"] + [a + b for a, b in merges]
    vocab = {w: i for i, w in enumerate(words)}
    behind = [("<|image|>", True), ("<extra>", False), ("<|tool_call>", True)]
    added = [{"id": vocab.get(w, len(words) + i), "content": w, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": s}
             for part in ([(w, True) for w in named] + [(w, False) for w in inner], behind) for i, (w, s) in enumerate(part)]
    replaced = {"type": "Replace", "pattern": {"String": " "}, "content": blank}
    json.dump({"version": "1.0", "added_tokens": added, "normalizer": replaced, "pre_tokenizer": None, "post_processor": None,
               "decoder": {"type": "Sequence", "decoders": [{**replaced, "pattern": {"String": blank}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
               "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": vocab, "merges": merges}}, open(os.path.join(folder, "tokenizer.json"), "w"))
    json.dump({"tokenizer_class": "GemmaTokenizer", "sot_token": "<|turn>", "eot_token": "<turn|>", "soc_token": "<|channel>", "extra_special_tokens": ["<|image|>"],
               **{k + "_token": f"<{k}>" for k in ("bos", "eos", "pad", "unk", "mask")}}, open(os.path.join(folder, "tokenizer_config.json"), "w"))
    config = json.load(open(os.path.join(folder, "config.json")))
    config["vocab_size"] = config["vocab_size_per_layer_input"] = len(words) + len(behind)
    json.dump(config, open(os.path.join(folder, "config.json"), "w"))
    tensors = load_file(os.path.join(source, "model.safetensors"))
    tensors["model.embed_tokens.weight"] = torch.randn(config["vocab_size"], config["hidden_size"]).bfloat16()
    save_file(tensors, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    theirs, ours = folder + ".theirs.gguf", folder + ".gguf"
    subprocess.run([sys.executable, os.path.join(llama_cpp, "convert_hf_to_gguf.py"), folder, "--outtype", "bf16", "--outfile", theirs], check=True, capture_output=True)
    if os.path.exists(ours):
        os.remove(ours)
    monotron("convert", "--input", folder, "--to", "gguf", "--type", "bf16", "--output", ours)
    compare("gemma4 with its tokenizer", "bf16", theirs, ours)


for name in wanted or models:
    folder = os.path.join(work, name)
    if not os.path.exists(os.path.join(folder, "config.json")):
        make(name, folder)
    try:
        for kind in ("f32", "bf16", "q8_0"):
            theirs, ours = f"{folder}.{kind}.theirs.gguf", f"{folder}.{kind}.gguf"
            if not os.path.exists(theirs):
                convert(folder, kind, theirs)
            if os.path.exists(ours):
                os.remove(ours)
            monotron("convert", "--input", folder, "--to", "gguf", "--type", kind, "--output", ours)
            compare(name, kind, theirs, ours)
        back(name, folder, f"{folder}.bf16.theirs.gguf")
    except Exception as e:
        check(False, f"{name}: {type(e).__name__} {e} ({traceback.extract_tb(e.__traceback__)[-1]})")
if "gpt-oss" in (wanted or models):
    fours()
if "gemma4" in (wanted or models):
    gemma4_words()
if "glm4_moe" in (wanted or models):
    last = "model.layers.2."
    ahead("glm4_moe", {"num_nextn_predict_layers": 1}, "model.layers.1.", last, [last + n for n in ("enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.norm.weight")])
if "nemotron_h-moe" in (wanted or models):
    ahead("nemotron_h-moe", {"num_nextn_predict_layers": 1}, "backbone.layers.2. backbone.layers.1.", "mtp.layers.0. mtp.layers.1.",
          ["mtp.layers.0." + n + ".weight" for n in ("enorm", "hnorm", "eh_proj")] + ["mtp.layers.1.final_layernorm.weight"])
if "qwen3_5" in (wanted or models):
    ahead("qwen3_5", {"mtp_num_hidden_layers": 1}, "model.layers.3.", "mtp.layers.0.", ["mtp." + n + ".weight" for n in ("fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")])
sys.exit(failed > 0)

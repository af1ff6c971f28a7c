"""Makes cases of adapters on more than linear layers with the real PEFT, in float64: on embeddings and output layers, on
experts, with modules_to_save and with biases.

usage: parts.py CASES OUT [CASE..]: CASES is golden/model; OUT gets a folder a case: PEFT's two files with the adapter's start, grad/ and
after/ with the gradients of the first step and the adapter after eight in the same files, expected.safetensors with logits, and
case.json with losses and norms. tools/verify/modelcase/testdata/adapters is its output.
usage: parts.py --load ADAPTER BASE MERGED: PEFT loads an adapter of ours over BASE, uses each of its tensors, and gives the
logits of MERGED."""
import json
import os
import re
import shutil
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file, save_file

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../checkpoints"))
import training

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

OWN = "testdata/"  # of tools/verify/modelcase
CASES = {
    "llama-tables": ("llama", dict(target_modules=["embed_tokens", "lm_head", "v_proj"], r=3, lora_alpha=5, rank_pattern={"lm_head": 2})),
    "llama-saved": ("llama", dict(target_modules=["q_proj"], modules_to_save=["lm_head", "model.norm", "self_attn.o_proj"], r=2, lora_alpha=4)),
    "gpt2-bias": ("gpt2-tanh", dict(target_modules=["attn.c_proj", "c_fc"], bias="lora_only", fan_in_fan_out=True, r=2, lora_alpha=4)),
    "qwen2-bias": ("qwen2", dict(target_modules=["q_proj", "down_proj"], bias="all", use_dora=True, r=2, lora_alpha=4)),
    "qwen3-moe-experts": ("qwen3-moe", dict(target_modules=["o_proj"], target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"], r=2, lora_alpha=4,
                                            rank_pattern={"experts.down_proj": 3})),
    "granite4-scans": (OWN + "granite4-h", dict(target_modules=["in_proj", "out_proj", "q_proj", "shared_mlp.output_linear"], r=2, lora_alpha=3)),
    "nemotron-scans": (OWN + "nemotron-h", dict(target_modules=["in_proj", "up_proj"], use_dora=True, r=2, lora_alpha=4)),
    "mamba2-scans": (OWN + "mamba2", dict(target_modules=["in_proj"], use_rslora=True, r=3, lora_alpha=2)),
    "olmoe-down": ("olmoe", dict(target_modules=[], target_parameters=["experts.down_proj"], use_rslora=True, r=2, lora_alpha=3)),
}


def base_of(folder):  # a folder that transformers reads, from a case
    into = tempfile.mkdtemp()
    shutil.copy(os.path.join(folder, "config.json"), into)
    shutil.copy(os.path.join(folder, "weights.safetensors"), os.path.join(into, "model.safetensors"))
    return into


def model_of(folder, dtype=torch.float64):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager").eval()


def tensors_of(model, values):  # of all trained parameters, under the names of PEFT's files
    state = {name: values(p) for name, p in model.named_parameters() if p.requires_grad}
    full = {k: state.get(k, torch.zeros_like(v, dtype=torch.float64)) for k, v in model.state_dict().items()}
    out = get_peft_model_state_dict(model, state_dict=full, save_embedding_layers=False)
    return {k: v.detach().double().contiguous().clone() for k, v in out.items()}


def case(name, cases, out):
    base, settings = CASES[name]
    torch.manual_seed(len(name))
    at = os.path.join("tools/verify/modelcase", base) if base.startswith(OWN) else os.path.join(cases, base)
    model = model_of(base_of(at))
    batches = load_file(os.path.join(at, "batches.safetensors"))
    loss_of = lambda m, i: torch.nn.functional.cross_entropy(m(input_ids=tokens[i].long(), use_cache=False).logits.flatten(0, 1), batches["labels"][i].long().flatten())
    tokens = batches["tokens"]
    training.f64(base.startswith(OWN))  # scans compute in float32 on purpose
    with torch.no_grad():
        plain = model(input_ids=tokens[0].long(), use_cache=False).logits
    peft = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **settings), autocast_adapter_dtype=False).double().eval()
    with torch.no_grad():
        for key, p in peft.named_parameters():
            if p.requires_grad:  # nothing starts at 0, or as the base has it
                p.add_(0.05 * torch.randn_like(p)) if "lora_" not in key else p.copy_(0.1 * torch.randn_like(p) + (p if "magnitude" in key else 0))
                p.copy_(p.to(training.F32).double())
        adapted = peft(input_ids=tokens[0].long(), use_cache=False).logits
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    training.f64(False)
    peft.save_pretrained(folder)
    trained = [(k, p) for k, p in peft.named_parameters() if p.requires_grad]
    plainly = [p for k, p in trained if "lora_" not in k and p.dim() == 1]  # as transformers' Trainer has it
    optimizer = torch.optim.AdamW([{"params": [p for k, p in trained if not any(p is q for q in plainly)]}, {"params": plainly, "weight_decay": 0}],
                                  lr=5e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    curve = []
    for i in range(min(8, len(tokens))):
        optimizer.zero_grad()
        training.f64(base.startswith(OWN))
        loss = loss_of(peft, i)
        loss.backward()
        training.f64(False)
        norm = torch.sqrt(sum((p.grad**2).sum() for _, p in trained))
        curve.append({"iteration": i + 1, "loss": loss.item(), "grad_norm": norm.item()})
        if i == 0:
            write(folder, "grad", tensors_of(peft, lambda p: p.grad))
        optimizer.step()
    write(folder, "after", tensors_of(peft, lambda p: p))
    config = os.path.join(folder, "adapter_config.json")
    said = json.load(open(config))
    said["base_model_name_or_path"] = base
    json.dump({k: said[k] for k in sorted(said)}, open(config, "w"), indent=1)
    for sub in ("grad", "after"):
        shutil.copy(config, os.path.join(folder, sub))
    adapter = load_file(os.path.join(folder, "adapter_model.safetensors"))
    save_file({k: v.float() for k, v in adapter.items()}, os.path.join(folder, "adapter_model.safetensors"))
    save_file({"logits": adapted.detach().float(), "logits_without_adapter": plain.float()}, os.path.join(folder, "expected.safetensors"))
    json.dump({"name": name, "base": base, "expected": {"curve": curve}, "produced_by": {"peft": __import__("peft").__version__, "transformers": transformers.__version__},
               "tolerance": {"logits_abs": 5e-5, "gradient_rel_to_tensor_norm": 2e-5, "adapter_after_rel_to_tensor_norm": 1e-5, "curve_loss_abs": 1e-5, "curve_grad_norm_rel": 1e-5}},
              open(os.path.join(folder, "case.json"), "w"), indent=1)
    for extra in ("README.md",):
        if os.path.exists(os.path.join(folder, extra)):
            os.remove(os.path.join(folder, extra))


def write(folder, sub, tensors):
    os.makedirs(os.path.join(folder, sub), exist_ok=True)
    save_file(tensors, os.path.join(folder, sub, "adapter_model.safetensors"))


def load(adapter, base, merged):
    model = model_of(base, torch.float32)
    tokens = torch.tensor([[(7 * i * i + 3 * i + 1) % model.config.vocab_size for i in range(16)]])
    off = model(input_ids=tokens, use_cache=False).logits
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        peft = PeftModel.from_pretrained(model, adapter).eval()
    said = [str(w.message)[:300] for w in said if re.search("missing|unexpected|mismatch", str(w.message).lower())]
    disk, used = load_file(os.path.join(adapter, "adapter_model.safetensors")), get_peft_model_state_dict(peft, save_embedding_layers=False)
    unused = [k for k in disk if k not in used or not torch.equal(used[k].float(), disk[k].float())]
    on = peft(input_ids=tokens, use_cache=False).logits
    apart = (model_of(merged, torch.float32)(input_ids=tokens, use_cache=False).logits - on).abs().max().item()
    moved = (on - off).abs().max().item()
    print(json.dumps({"tensors": len(disk), "unused": unused, "said": said, "on_against_off": moved, "on_against_merged": apart}))
    return not unused and not said and moved > 1e-3 and apart < 1e-3 * max(1.0, on.abs().max().item())


if sys.argv[1] == "--load":
    sys.exit(0 if load(*sys.argv[2:5]) else 1)
for one in sys.argv[3:] or CASES:
    case(one, *sys.argv[1:3])

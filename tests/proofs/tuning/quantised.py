"""Loads the folders WORK/CASE-nf4 and WORK/CASE-int8 by transformers, and compares them with those that it quantises itself."""
import os
import sys
import tempfile

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

golden, work, cases = sys.argv[1], sys.argv[2], sys.argv[3:]
settings = {"nf4": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True), "int8": dict(load_in_8bit=True)}
bad = False
for case in cases:
    for kind, how in settings.items():
        theirs = AutoModelForCausalLM.from_pretrained(os.path.join(golden, case, "base"), quantization_config=BitsAndBytesConfig(**how), device_map="cpu", dtype="auto")
        ours = AutoModelForCausalLM.from_pretrained(os.path.join(work, f"{case}-{kind}"), device_map="cpu", dtype="auto")
        off = 0
        if kind == "int8":  # bitsandbytes' product of NF4 on a CPU takes rows of 64 alone
            ids = torch.arange(1, 17)[None]
            with torch.no_grad():
                off = (ours(ids).logits.float() - theirs(ids).logits.float()).abs().max().item()
        with tempfile.TemporaryDirectory() as folder:
            theirs.save_pretrained(folder)
            a, b = safe_open(os.path.join(work, f"{case}-{kind}", "model.safetensors"), "pt"), safe_open(os.path.join(folder, "model.safetensors"), "pt")
            names = sorted(b.keys())
            same = sorted(a.keys()) == names
            differ = [n for n in names if not n.endswith("quant_state.bitsandbytes__nf4") and (n not in a.keys() or not torch.equal(a.get_tensor(n), b.get_tensor(n)))]
        codes = [n for n in differ if n.endswith(".weight")]
        scales = [n for n in differ if n in names and b.get_tensor(n).is_floating_point() and not torch.allclose(a.get_tensor(n), b.get_tensor(n), rtol=1e-6, atol=0)]
        wrong = not same or off > 0 or codes or scales or kind == "int8" and differ
        bad = bad or bool(wrong)
        print(f"{'FAILED: ' if wrong else ''}{case} {kind}: {len(names)} tensors, {len(differ)} differ by rounding, logits by {off:.2g} at most")
sys.exit(bad)

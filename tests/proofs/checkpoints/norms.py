"""Compares the logits of a checkpoint with --apply-layernorm-1p with those of the Hugging Face folder that was made of
it: ours, transformers', and ours of a checkpoint that was made of the folder.

usage: norms.py FOLDER FAMILY
"""
import sys
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging

folder, family = sys.argv[1:]
logging.set_verbosity_error()
logging.disable_progress_bar()
ours = {name: load_file(f'{folder}/{name}.safetensors') for name in ('ckpt', 'hf', 'back')}
ids = ours['ckpt']['ids'].reshape(1, -1).long()
model = AutoModelForCausalLM.from_pretrained(f'{folder}/hf', dtype=torch.float32).eval()
assert model.config.model_type == family, model.config.model_type
with torch.no_grad():
    theirs = model(ids).logits[0]
want = ours['ckpt']['logits'].reshape(theirs.shape)
# Weights of norms that training moved, so that an export without the sum would differ.
moved = max((p - 1).abs().max().item() for name, p in model.named_parameters() if name.endswith('weight') and ('norm' in name.lower() or 'ln_' in name))
largest = want.abs().max().item()
plain = (ours['hf']['logits'].reshape(want.shape) - want).abs().max().item()
back = (ours['back']['logits'].reshape(want.shape) - want).abs().max().item()
peer = (theirs - want).abs().max().item()
print(f'{family}: norms moved by up to {moved:.2g}; of logits up to {largest:.3g}, ours of the folder differ by {plain:.2g}, '
      f'transformers\' by {peer:.2g}, ours of a run that started from it by {back:.2g}')
# The folder has the sums that the kernels multiply by: no bit differs. Sums of another order differ in the last bits
# of f32 (2^-23) after some tens of additions; a weight that went to 1+w and back has lost half a bit of 1+w.
bound = 2 ** -23 * largest * 16
sys.exit(0 if moved > 0.01 and plain == 0 and peer <= bound and back <= bound else 1)

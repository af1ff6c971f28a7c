"""Compares monotron generate with transformers' generate, id by id.

usage: generate.py GOLDEN_MODELS MONOTRON WORK
"""
import json, os, shutil, subprocess, sys
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

golden, monotron, work = sys.argv[1:]
logging.set_verbosity_error()
logging.disable_progress_bar()

PROMPTS = ['The ', 'In the beginning', 'it was a', 'a', 'We have seen that the']
# beams, n-gram, length with the prompt (0: prompt + 15), more
SEARCHES = [(1, 0, 40, {}), (1, 4, 40, {}), (5, 4, 0, {}), (3, 2, 50, {}), (5, 4, 40, {'early_stopping': True}),
            (4, 0, 40, {'length_penalty': 2.0}), (4, 3, 45, {'eos_token_id': 32})]


def theirs(model, ids, beams, ngram, length, more):
    options = dict(max_length=length, do_sample=False, num_beams=beams, no_repeat_ngram_size=ngram, pad_token_id=0, eos_token_id=None)
    options.update(more)
    out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), **options)
    return out[0].tolist()


def ours(folder, ids, beams, ngram, length, more):
    command = [monotron, 'generate', '--load', folder, '--json', '--max-length', str(length), '--num-beams', str(beams),
               '--no-repeat-ngram-size', str(ngram), '--stop-token', str(more.get('eos_token_id', 'none'))]
    if 'early_stopping' in more:
        command += ['--early-stopping']
    if 'length_penalty' in more:
        command += ['--length-penalty', str(more['length_penalty'])]
    r = subprocess.run(command + ['--prompt-ids'] + [str(i) for i in ids], capture_output=True, text=True)
    if r.returncode:
        return r.stderr
    answer = json.loads(r.stdout)
    return ids + (answer['ids'] if beams == 1 else answer['beams'][0]['ids'])


failed = 0
for name in ['generation-gpt2', 'generation-llama']:
    folder = os.path.join(work, name)
    os.makedirs(folder, exist_ok=True)
    shutil.copyfile(f'{golden}/{name}/config.json', f'{folder}/config.json')
    shutil.copyfile(f'{golden}/{name}/weights.safetensors', f'{folder}/model.safetensors')
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    runs = differ = 0
    for prompt in PROMPTS:
        ids = list(prompt.encode())
        for beams, ngram, length, more in SEARCHES:
            length = length or len(ids) + 15
            want, got = theirs(model, ids, beams, ngram, length, more), ours(folder, ids, beams, ngram, length, more)
            runs += 1
            if got != want:
                differ += 1
                print(f'{name} {prompt!r} beams {beams} n-gram {ngram} {more}:\n  ours   {got}\n  theirs {want}')
    failed += differ
    print(f'{name}: {runs - differ} of {runs} equal')
sys.exit(1 if failed else 0)

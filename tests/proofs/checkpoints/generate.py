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
# ranks of one process that share the model
LAYOUTS = [[], ['--tensor-model-parallel-size', '2'], ['--pipeline-model-parallel-size', '2'],
           ['--tensor-model-parallel-size', '2', '--pipeline-model-parallel-size', '2']]
# beams, n-gram, length with the prompt (0: prompt + 15), more
SEARCHES = [(1, 0, 40, {}), (1, 4, 40, {}), (5, 4, 0, {}), (3, 2, 50, {}), (5, 4, 40, {'early_stopping': True}),
            (4, 0, 40, {'length_penalty': 2.0}), (4, 3, 45, {'eos_token_id': 32})]


def theirs(model, ids, beams, ngram, length, more):
    options = dict(max_length=length, do_sample=False, num_beams=beams, no_repeat_ngram_size=ngram, pad_token_id=0, eos_token_id=None)
    options.update(more)
    out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), **options)
    return out[0].tolist()


def ours(folder, ids, beams, ngram, length, more, layout):
    command = [monotron, 'generate', '--load', folder, '--json', *layout, '--max-length', str(length), '--num-beams', str(beams),
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
            want = theirs(model, ids, beams, ngram, length, more)
            for layout in LAYOUTS:
                got = ours(folder, ids, beams, ngram, length, more, layout)
                runs += 1
                if got != want:
                    differ += 1
                    print(f'{name} {prompt!r} beams {beams} n-gram {ngram} {more} {layout}:\n  ours   {got}\n  theirs {want}')
    failed += differ
    print(f'{name}: {runs - differ} of {runs} equal')


def own_tokenizer():
    """A Llama with a tokenizer.json of its own: text in, the same ids out."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    folder = os.path.join(work, 'own-tokenizer')
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    text = open(__file__).read().splitlines()
    tokenizer.train_from_iterator(text, trainers.BpeTrainer(vocab_size=500, special_tokens=['<s>', '</s>'], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token='<s>', eos_token='</s>')
    fast.save_pretrained(folder)
    torch.manual_seed(7)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(fast), hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
                                         num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=1, initializer_range=0.3)).eval()
    model.save_pretrained(folder)
    runs = differ = 0
    for prompt in ['def theirs(model, ids):', 'Compares monotron', 'for beams in', 'import json,  os', 'näher → 日本']:
        ids = fast(prompt)['input_ids']
        for beams, ngram in [(1, 0), (5, 4)]:
            length = len(ids) + 15
            want = model.generate(torch.tensor([ids]), max_length=length, do_sample=False, num_beams=beams, no_repeat_ngram_size=ngram, pad_token_id=0)[0].tolist()
            r = subprocess.run([monotron, 'generate', '--load', folder, '--json', '--max-length', str(length), '--num-beams', str(beams),
                                '--no-repeat-ngram-size', str(ngram), '--tensor-model-parallel-size', '2', '--prompt', prompt], capture_output=True, text=True)
            answer = json.loads(r.stdout) if r.returncode == 0 else {}
            best = (answer if beams == 1 else answer.get('beams', [{}])[0]) or {}
            got = answer.get('prompt_ids', []) + best.get('ids', [])
            while want and want[-1] in (0, 1) and len(want) > len(got):
                want.pop()  # the end of the text is not among ours
            runs += 1
            if got != want or best.get('text') != fast.decode(want[len(ids):]):
                differ += 1
                print(f'own tokenizer {prompt!r} beams {beams}:\n  ours   {got} {best.get("text")!r} {r.stderr[-200:]}\n  theirs {want} {fast.decode(want[len(ids):])!r}')
    print(f'own tokenizer: {runs - differ} of {runs} equal')
    return differ


failed += own_tokenizer()
sys.exit(1 if failed else 0)

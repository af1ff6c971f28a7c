"""harness.py URL MODEL FOLDER: lm-evaluation-harness asks a server (local-completions) for the likelihoods of texts and of choices;
every number must be the sum of what `monotron logits` says of the same tokens. Exits 1 where one is not."""
import glob, json, os, subprocess, sys

url, model, folder = sys.argv[1:]
first = 10  # the token that whole texts come after: the tokenizer has none that begins a text
texts = ['The king of the hill', 'The queen of the day', 'O what a day it was', 'Good day to you all']
with open(f'{folder}/texts.jsonl', 'w') as f:
    for t in texts:
        f.write(json.dumps({'text': t, 'begin': t[:8].rstrip(), 'ends': [t[8:].lstrip(), 'xyz']}) + '\n')
common = f'dataset_path: json\ndataset_kwargs: {{data_files: {{test: {folder}/texts.jsonl}}}}\ntest_split: test\n'
for name, rest in {
    'whole_texts': 'output_type: loglikelihood_rolling\ndoc_to_text: ""\ndoc_to_target: "{{text}}"\nmetric_list:\n  - metric: bits_per_byte\n',
    'two_ends': 'output_type: multiple_choice\ndoc_to_text: "{{begin}}"\ndoc_to_target: 0\ndoc_to_choice: "{{ends}}"\nmetric_list:\n  - metric: acc\n',
}.items():
    with open(f'{folder}/{name}.yaml', 'w') as f:
        f.write(f'task: {name}\n' + common + rest)
subprocess.run([os.path.join(os.path.dirname(sys.executable), 'lm_eval'), 'run', '--model', 'local-completions', '--model_args',
    f'model=model,base_url={url}/v1/completions,tokenizer={model},tokenizer_backend=huggingface,max_length=64,num_concurrent=4,custom_prefix_token_id={first}',
    '--include_path', folder, '--tasks', 'whole_texts,two_ends', '--log_samples', '--output_path', f'{folder}/out'],
    check=True, env={**os.environ, 'HF_HUB_OFFLINE': '1', 'HF_DATASETS_OFFLINE': '1'}, stdout=subprocess.DEVNULL, stderr=open(f'{folder}/harness.log', 'w'))

from transformers import AutoTokenizer  # after the harness, which says what is wrong with it better

tokenizer = AutoTokenizer.from_pretrained(model)


def ours(context, rest):
    """The log-probability of rest after context, both ids."""
    ids = ' '.join(map(str, context + rest))
    lines = subprocess.run(['bin/monotron', 'logits', '--load', model, '--prompt-ids', ids, '--json', '--top-k', '1'], check=True, capture_output=True).stdout.splitlines()
    return sum(json.loads(line)['next_log_prob'] for line in lines[len(context) - 1:-1])


worst = compared = 0
for path in glob.glob(f'{folder}/out/*/samples_*.jsonl'):
    for line in open(path):
        d = json.loads(line)
        for (name, args), got in zip(sorted(d['arguments'].items()), d['resps']):
            if 'whole_texts' in path:
                want, said = ours([first], tokenizer.encode(args['arg_0'])), float(got[0])
            else:
                context = tokenizer.encode(args['arg_0'])
                want, said = ours(context, tokenizer.encode(args['arg_0'] + args['arg_1'])[len(context):]), float(got[0][0])
            worst, compared = max(worst, abs(want - said)), compared + 1
print(f'{compared} likelihoods, the largest difference {worst:.1e}')
sys.exit(compared != 3 * len(texts) or worst > 1e-4)

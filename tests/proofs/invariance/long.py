# long.py BIN WORK SEED COUNT STEPS MODEL FIRST: see long.sh. Prints a line a run; exit 1 where a hash differs from that of one rank.
import json, os, random, subprocess, sys, time

from cuts import flags, layouts

BIN, WORK, SEED, COUNT, STEPS, MODEL, FIRST = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), sys.argv[6], int(sys.argv[7])
PRECISION = os.environ.get('PRECISION', 'f32')
SIZES = {'1m': (4, 128, 8, 64), '30m': (8, 512, 8, 32)}  # the larger one on fewer tokens, so that 24 layouts take two hours
layers, hidden, heads, length = SIZES[MODEL]
BASE = (
    f'--device cpu --layout-invariant --mock-data --tokenizer-type NullTokenizer --vocab-size 1000 --num-layers {layers} --hidden-size {hidden} --num-attention-heads {heads} '
    f'--seq-length {length} --max-position-embeddings {length} --global-batch-size 8 --train-iters {STEPS} --lr 1e-3 --lr-decay-style cosine --min-lr 1e-4 --clip-grad 0.5 --swiglu '
    '--normalization RMSNorm --position-embedding-type rope --group-query-attention --num-query-groups 4 --attention-dropout 0.1 --hidden-dropout 0.1 '
    f'--eval-iters 0 --sequence-leaves 8 --log-weights-hash {max(1, STEPS // 6)} --no-plan --cpu-threads 2'
).split() + ([f'--{PRECISION}'] if PRECISION != 'f32' else [])
# How ranks run: goroutines, or processes whose messages take one transport; and with which instructions.
WAYS = [('goroutines', None, {}), ('processes, shared memory', 'shm', {}), ('processes, Gloo', 'gloo', {}), ('processes, TCP', 'tcp', {}), ('goroutines, AVX2', None, {'MONOTRON_ISA': 'avx2'})]


def run(l, transport, more):
    """The hashes of a run, by step."""
    world, log = l[0] * l[1] * l[2] * l[3], os.path.join(WORK, 'run.jsonl')
    if os.path.exists(log):
        os.remove(log)
    line = ['pretrain_gpt', *BASE, *flags(l), '--log-jsonl', log]
    if transport:
        line = [f'{BIN}/monotron', 'launch', '--nproc-per-node', str(world), '--', *line]
        more = more | {'MONOTRON_TRANSPORTS': transport}
    else:
        line = [f'{BIN}/monotron', *line, '--world-size', str(world)]
    p = subprocess.run(line, env=os.environ | more, capture_output=True, text=True)
    if p.returncode:
        sys.exit(f'{flags(l)} {transport} {more}: exit {p.returncode}: {p.stderr[-800:]}')
    return {s['iteration']: s['weights_hash'] for s in map(json.loads, open(log)) if 'weights_hash' in s}


r, every = random.Random(SEED), list(layouts((1, 2, 4, 8)))
want = run((1, 1, 1, 1, False, 0, 8), None, {})
print(f'one rank, micro-batch 8: {want[STEPS][:16]} after {STEPS} steps', flush=True)
ways = [WAYS[n % len(WAYS)] for n in range(COUNT)]
if MODEL == '1m':  # portable C takes many times as long
    ways.append(('goroutines, portable C', None, {'MONOTRON_ISA': 'portable'}))
seen = []  # each layout once
for n, (name, transport, more) in enumerate(ways):
    l = r.choice([l for l in every if l not in seen and (not transport or l[0] * l[1] * l[2] * l[3] > 1)])
    seen.append(l)
    if n < FIRST:
        continue
    began = time.time()
    got = run(l, transport, more)
    for step, h in want.items():
        if got.get(step) != h:
            sys.exit(f'{flags(l)} as {name}: step {step} has hash {got.get(step, "none")[:16]}, one rank {h[:16]} (seed {SEED}, run {n})')
    print(f'{l[0] * l[1] * l[2] * l[3]} ranks, {name}: {" ".join(flags(l))}: the same, {time.time() - began:.0f} s', flush=True)
print(f'{len(ways) - FIRST} runs of {STEPS} steps of the {MODEL} model in {PRECISION} under layouts of 1 to 8 ranks (of {len(every)}, seed {SEED}): one hash')

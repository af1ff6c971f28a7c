# cost.py BIN WORK ROUNDS STEPS: see cost.sh. Prints a line a layout and precision, then a table of a step's parts.
import collections, json, os, subprocess, sys

BIN, WORK, ROUNDS, STEPS = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
MODEL = os.environ.get('MODEL', 'gpt2-124m')
LINE = f'--model {MODEL} --device cpu --mock-data --seq-length 512 --micro-batch-size {{}} --global-batch-size 4 --lr 1e-4 --eval-iters 0 --no-plan --attention-dropout 0 --hidden-dropout 0'
LAYOUTS = {'1 rank': (4, ''), 'dp 2': (2, '--world-size 2'), 'tp 2': (4, '--world-size 2 --tensor-model-parallel-size 2 --sequence-parallel')}
# The parts of a step, by the first words of their ops' names; other ops are parts of their own.
PARTS = {
    'products': ('matmul', 'grouped_matmul'),
    'attention': ('attention', 'rope'),
    'gradients on grids': ('grid_add',),
    'gradient norm': ('grad_stats', 'grad_scale', 'exact_squares'),
    'optimizer': ('adamw',),
}


def run(layout, flags):
    """The seconds of the fastest step but the first, which runs twice, and the log's folder."""
    batch, more = LAYOUTS[layout]
    log = os.path.join(WORK, 'steps.jsonl')
    for old in (log, os.path.join(WORK, 'trace.json')):
        if os.path.exists(old):
            os.remove(old)
    words = [f'{BIN}/pretrain_gpt', *LINE.format(batch).split(), *more.split(), *flags, '--log-jsonl', log]
    p = subprocess.run(words, capture_output=True, text=True)
    if p.returncode:
        sys.exit(f'{" ".join(words)}: exit {p.returncode}: {p.stderr[-800:]}')
    return min(s['seconds'] for s in map(json.loads, open(log)) if s['iteration'] > 1 and 'seconds' in s)


def parts(flags):
    """Seconds of the third step by part, from its trace."""
    run('1 rank', [*flags, '--train-iters', '3', '--profile', f'{WORK}/trace.json', '--profile-step-start', '3', '--profile-step-end', '4'])
    seconds = collections.Counter()
    for e in json.load(open(f'{WORK}/trace.json'))['traceEvents']:
        if e.get('cat') == 'op':
            part = next((p for p, names in PARTS.items() if e['name'].startswith(names)), 'rows: ' + e['name'])
            seconds[part] += e['dur'] / 1e6
    return seconds


for precision in ([], ['--bf16']):
    name = 'bf16' if precision else 'f32'
    for layout in LAYOUTS:
        best = {False: [], True: []}
        for _ in range(ROUNDS):
            for invariant in (False, True):
                best[invariant].append(run(layout, [*precision, '--train-iters', str(STEPS), *(['--layout-invariant'] if invariant else [])]))
        plain, with_flag = min(best[False]), min(best[True])
        print(f'{name}, {layout}: {plain:.2f} s a step, with the flag {with_flag:.2f} s: {with_flag / plain:.2f}', flush=True)
    table = [parts([*precision, *f]) for f in ([], ['--layout-invariant'])]
    print(f'{name}, 1 rank, seconds of a step by part: default, with the flag')
    for part in sorted(set(table[0]) | set(table[1]), key=lambda p: -max(t[p] for t in table)):
        if max(t[part] for t in table) >= 0.005:
            print(f'  {part:32s} {table[0][part]:7.3f} {table[1][part]:7.3f}', flush=True)

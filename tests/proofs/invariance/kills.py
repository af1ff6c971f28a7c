# kills.py PRETRAIN WORK SEED COUNT: see kills.sh. Prints the layouts with their numbers of starts, and
# how many steps were compared; exit 1 at the first hash that differs, with run, layout and step.
import collections, json, os, random, shutil, signal, subprocess, sys

import cuts

BIN, WORK, SEED, COUNT = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
STEPS = 40
BASE = ('--device cpu --layout-invariant --mock-data --tokenizer-type NullTokenizer --vocab-size 500 --num-layers 4 --hidden-size 64 --num-attention-heads 8 '
        '--seq-length 64 --max-position-embeddings 64 --global-batch-size 8 --train-iters %d --lr 1e-3 --lr-decay-style cosine --min-lr 1e-4 --clip-grad 0.5 '
        '--eval-iters 0 --sequence-leaves 4 --log-weights-hash 1 --no-plan --allow-missing-load' % STEPS).split()
MIXTURE = ('--swiglu --normalization RMSNorm --group-query-attention --num-query-groups 4 --position-embedding-type rope --disable-bias-linear --num-experts 8 --moe-ffn-hidden-size 64 '
           '--moe-router-topk 2 --moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-shared-expert-intermediate-size 64 --moe-router-load-balancing-type seq_aux_loss '
           '--moe-aux-loss-coeff 0.01 --moe-z-loss-coeff 0.001')
MODELS = ['', '--swiglu --normalization RMSNorm --group-query-attention --num-query-groups 4 --position-embedding-type rope --disable-bias-linear --ffn-hidden-size 128 '
          '--untie-embeddings-and-output-weights', '--bf16', MIXTURE, '--position-embedding-type alibi --embed-layernorm --fp16 --initial-loss-scale 1024']

def experts(r, l):
    """The flags that cut the experts of a mixture in some way that l allows; None: there is none."""
    tp, pp, cp, dp, sp, zero, micro = l
    if tp > 1 and not sp:
        return None
    etp = r.choice([1, tp])
    ep = r.choice([n for n in (1, 2, 4, 8) if tp * cp * dp % (etp * n) == 0])
    return ['--expert-model-parallel-size', str(ep), '--expert-tensor-parallel-size', str(etp), '--moe-token-dispatcher-type', r.choice(['allgather', 'alltoall'])]

def flags(l):
    return ['--world-size', str(l[0] * l[1] * l[2] * l[3]), *cuts.flags(l)]

def hashes(path):
    found = {}
    if os.path.exists(path):
        for line in open(path, errors='replace'):
            try:
                step = json.loads(line)
            except ValueError:
                continue  # cut by the kill
            if 'weights_hash' in step:
                found[step['iteration']] = step['weights_hash']
    return found

def main():
    r, every = random.Random(SEED), list(cuts.layouts((1, 2, 4)))
    starts, kills, compared, ended = collections.Counter(), 0, 0, 0
    while kills < COUNT:
        model = r.choice(MODELS).split()
        log = os.path.join(WORK, 'one.jsonl')
        if os.path.exists(log):
            os.remove(log)
        subprocess.run([BIN] + BASE + model + ['--micro-batch-size', '2', '--log-jsonl', log], check=True, capture_output=True)
        want = hashes(log)
        save = os.path.join(WORK, 'save')
        shutil.rmtree(save, ignore_errors=True)
        done = False
        while not done:
            l, more = r.choice(every), []
            if '--num-experts' in model:
                more = experts(r, l)
                if more is None:
                    continue
            starts[l] += 1
            log = os.path.join(WORK, 'run.jsonl')
            if os.path.exists(log):
                os.remove(log)
            p = subprocess.Popen([BIN] + BASE + model + flags(l) + more + ['--save', save, '--load', save, '--save-interval', str(r.randint(1, 9)), '--keep-last', '2', '--log-jsonl', log],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                _, err = p.communicate(timeout=r.uniform(0.3, 2.5))
                if p.returncode:
                    sys.exit('%s %s: exit %d: %s' % (model, flags(l) + more, p.returncode, err[-500:]))
                done = True
            except subprocess.TimeoutExpired:
                p.send_signal(signal.SIGKILL)
                p.communicate()
                kills += 1
            for step, h in hashes(log).items():
                compared += 1
                if h != want[step]:
                    sys.exit('%s: step %d under %s has hash %s, one rank %s (seed %d, kill %d)' % (model, step, flags(l) + more, h[:16], want[step][:16], SEED, kills))
            if kills >= COUNT and not done:
                break
        ended += done
    print('seed %d: %d kills, %d runs ended, %d starts under %d of %d layouts, %d steps compared: one hash each' %
          (SEED, kills, ended, sum(starts.values()), len(starts), len(every), compared))

main()

# nodes.py MONOTRON WORK SEED COUNT KIND MODE...: see nodes.sh. Exit 1 at the first run that ends with another code,
# other losses or other weights than the undisturbed one.
import datetime, glob, json, os, random, shutil, signal, socket, subprocess, sys, time

BIN, WORK, SEED, COUNT, KIND, MODES = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], sys.argv[6:]
STEPS, LOCAL, HOSTS = 60, 2, 2
MODEL = ('--device cpu --cpu-threads 1 --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 '
         '--global-batch-size 8 --train-iters %d --lr 1e-3 --lr-decay-style cosine --mock-data --tokenizer-type NullTokenizer --vocab-size 500 --eval-interval 20 '
         '--eval-iters 1 --log-interval 1 --tensor-model-parallel-size 2 --use-distributed-optimizer' % STEPS).split()
TUNED = ('--device cpu --cpu-threads 1 --load %s/base --seq-length 64 --micro-batch-size 1 --global-batch-size 8 --train-iters %d --lr 1e-3 --lr-decay-style cosine --min-lr 1e-4 '
         '--seed 7 --log-interval 1 ' % (WORK, STEPS)).split()
ROWS, PAIRS = '--finetune-data %s/rows.jsonl ' % WORK, '--finetune-data %s/pairs.jsonl ' % WORK
KINDS = {
    'lora': ROWS + '--lora-rank 4 --use-distributed-optimizer',
    'dora': ROWS + '--lora-rank 4 --use-dora',
    'nf4': ROWS + '--lora-rank 4 --quantize-base nf4 --double-quant',
    'apart': ROWS + '--lora-rank 4 --save-adapter-only',
    'dpo': PAIRS + '--tuning dpo --use-distributed-optimizer',
    'dpo-lora': PAIRS + '--tuning dpo --lora-rank 4',
    'kto-reference': PAIRS + '--tuning kto --ref-load %s/reference' % WORK,
    'grpo': '--finetune-data %s/prompts.jsonl --tuning grpo --lora-rank 4 --grpo-group-size 4 --grpo-iterations 3 --max-completion-length 12 --reward-pattern a --grpo-kl-beta 0.05' % WORK,
}
if KIND in KINDS:
    MODEL = TUNED + KINDS[KIND].split()
elif KIND != 'pretraining':
    sys.exit('there is no kind ' + KIND)
KEEPS = {'disk': '--save-interval 10 --keep-last 2', 'memory': '--save-interval 30 --memory-checkpoint-interval 2 --replication-jump %d' % LOCAL}
KEEPS['spare'] = KEEPS['memory']
LIMIT = 600  # seconds that one run may take: a hang is a failure, not a wait

def fail(text):
    print('FAILED:', text)
    sys.exit(1)

class Network:
    """Hosts as network namespaces at one bridge; without the permission all are this host."""
    def __init__(self, hosts):
        self.names = ['mtn%dh%d' % (os.getpid() % 100000, i) for i in range(hosts)]
        self.bridge = 'mtn%dsw' % (os.getpid() % 100000)
        self.spaces = self.make()
        self.master = '10.99.8.1' if self.spaces else '127.0.0.1'

    def make(self):
        def ip(line):
            subprocess.run(['ip'] + line.split(), check=True, capture_output=True)
        try:
            ip('netns add ' + self.bridge)
            ip('-n %s link add br0 type bridge' % self.bridge)
            ip('-n %s link set br0 up' % self.bridge)
            for i, name in enumerate(self.names):
                ip('netns add ' + name)
                ip('-n %s link add veth%d type veth peer name eth0 netns %s' % (self.bridge, i, name))
                ip('-n %s link set veth%d master br0 up' % (self.bridge, i))
                ip('-n %s addr add 10.99.8.%d/24 dev eth0' % (name, i + 1))
                ip('-n %s link set eth0 up' % name)
                ip('-n %s link set lo up' % name)
            subprocess.run(['ip', 'netns', 'exec', self.names[0], 'unshare', '--uts', 'true'], check=True, capture_output=True)
            return True
        except (OSError, subprocess.CalledProcessError) as e:
            self.remove()
            print('network namespaces are not permitted (%s): all hosts are this one' % e)
            return False

    def remove(self):
        for name in self.names + [self.bridge]:
            subprocess.run(['ip', 'netns', 'del', name], capture_output=True)

    def on(self, host, words):
        if not self.spaces:
            return words
        return ['ip', 'netns', 'exec', self.names[host], 'unshare', '--uts', 'sh', '-c', 'hostname "$0" && exec "$@"', self.names[host]] + words

    def kill(self, host, launcher):
        """Ends every process of a host at once; those of the kernel's making follow."""
        pids = [launcher.pid]
        if self.spaces:
            out = subprocess.run(['ip', 'netns', 'pids', self.names[host]], capture_output=True, text=True).stdout
            pids += [int(p) for p in out.split()]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

def free_port():
    while True:
        port = random.SystemRandom().randrange(20000, 31000)
        try:
            for p in port, port + 1:
                s = socket.socket()
                s.bind(('127.0.0.1', p))
                s.close()
            return port
        except OSError:
            pass

class Run:
    def __init__(self, net, name, mode):
        self.net, self.dir, self.spares = net, os.path.join(WORK, name), int(mode == 'spare')
        os.makedirs(self.dir)
        self.port, self.jsonl, self.mode = free_port(), os.path.join(self.dir, 'log.jsonl'), mode
        self.began = time.time()
        self.launchers = [self.start(h) for h in range(HOSTS + self.spares)]

    def start(self, host):
        words = [BIN, 'launch', '--nproc-per-node', str(LOCAL), '--nnodes', str(HOSTS), '--spares', str(self.spares), '--node-rank', str(host), '--master-addr', self.net.master,
                 '--master-port', str(self.port), '--auto-restart', '--max-restarts', '3', '--run-folder', os.path.join(self.dir, 'run%d' % host), '--', 'pretrain_gpt'] + MODEL
        words += KEEPS[self.mode].split() + ['--save', os.path.join(self.dir, 'ck'), '--log-jsonl', self.jsonl]
        env = dict(os.environ, MONOTRON_SECRET='0123456789abcdef0123456789abcdef')
        with open(os.path.join(self.dir, 'host%d.log' % host), 'ab') as log:
            return subprocess.Popen(self.net.on(host, words), stdout=log, stderr=log, env=env, start_new_session=True)

    def steps(self):
        """Steps as (seconds, number), in the order in which they were made."""
        try:
            lines = [json.loads(l) for l in open(self.jsonl) if l.endswith('}\n')]
        except FileNotFoundError:
            return []
        return [(seconds(l['time']), l['iteration']) for l in lines if 'grad_norm' in l]

    def await_steps(self, n):
        while len(self.steps()) < n:
            if time.time() > self.began + LIMIT or all(p.poll() is not None for p in self.launchers):
                self.give_up('never came to step %d' % n)
            time.sleep(0.02)

    def ranks(self):
        """Processes of ranks, by rank."""
        found = {}
        for path in glob.glob('/proc/[0-9]*/environ'):
            try:
                env, line = open(path, 'rb').read().split(b'\0'), open(os.path.dirname(path) + '/cmdline', 'rb').read()
            except OSError:
                continue
            if b'pretrain_gpt' in line and self.jsonl.encode() in line and b'\0launch\0' not in line:
                found.update({int(e[5:]): int(path.split('/')[2]) for e in env if e.startswith(b'RANK=')})
        return found

    def end(self, gone=()):
        """Waits for the launchers: each must end with 0."""
        for h, p in enumerate(self.launchers):
            try:
                code = p.wait(max(1, self.began + LIMIT - time.time()))
            except subprocess.TimeoutExpired:
                self.give_up('host %d does not end' % h)
            if h not in gone and code != 0:
                self.give_up('host %d ended with %d' % (h, code))

    def give_up(self, why):
        for h, p in enumerate(self.launchers):
            self.net.kill(h, p)
        for log in sorted(glob.glob(self.dir + '/host*.log')):
            print('--', log)
            print(''.join(open(log, errors='replace').readlines()[-25:]))
        fail('%s: %s' % (self.dir, why))

    def result(self):
        """The last loss of each step, and the hash of all weights of the last checkpoint."""
        losses = {}
        for l in open(self.jsonl):
            l = json.loads(l)
            if 'grad_norm' in l:
                losses[l['iteration']] = (l['lm_loss'], l['grad_norm'])
        out = subprocess.run([BIN, 'inspect', 'checkpoint', '--verify', '--json', os.path.join(self.dir, 'ck')], capture_output=True, text=True, check=True).stdout
        return losses, json.loads(out)['weights_hash']

def seconds(text):
    """Seconds since the epoch of 2026-11-26T22:07:10.1492Z, however many digits it has."""
    whole, _, part = text.rstrip('Z').partition('.')
    return datetime.datetime.fromisoformat(whole + '+00:00').timestamp() + float('0.' + (part or '0'))

def seconds_of(steps):
    return steps[-1][0] - steps[0][0]

def one(net, r, name, mode, want, length):
    """One run with one kill: None where that came too late."""
    run = Run(net, name, mode)
    whole_host = mode == 'spare' or KIND in KINDS or r.random() < 0.5
    victim, moment = r.randrange(HOSTS if whole_host else HOSTS * LOCAL), r.random() * 0.9 * length
    run.await_steps(1)
    time.sleep(moment)
    before, killed = run.steps(), time.time()
    if whole_host:
        net.kill(victim, run.launchers[victim])
        run.launchers[victim].wait()
    else:
        pid = run.ranks().get(victim)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
    if before[-1][1] >= STEPS - 3:  # the other hosts may have been done: not counted
        for h, p in enumerate(run.launchers):
            net.kill(h, p)
            p.wait()
        shutil.rmtree(run.dir)
        return None
    if whole_host and mode != 'spare':
        run.launchers[victim] = run.start(victim)
    run.end(gone=[victim] if whole_host and mode == 'spare' else [])
    if run.result() != want:
        run.give_up('killed %s %d at %.3f s: the result differs' % ('host' if whole_host else 'rank', victim, moment))
    steps = run.steps()
    logs = ''.join(open(l, errors='replace').read() for l in glob.glob(run.dir + '/host*.log'))
    shutil.rmtree(run.dir)
    if 'restarting (' not in logs:
        return None
    at = max(range(len(before), len(steps)), key=lambda i: steps[i][0] - steps[i - 1][0])  # the first step after the restart
    reached, second = steps[at - 1][1], steps[at:]
    back = [t for t, n in second if n == reached + 1] or [second[-1][0]]
    return {'host': whole_host, 'steps': reached + 1 - second[0][1], 'seconds': back[0] - killed,
            'memory': logs.count('loaded the memory checkpoint'), 'copies': logs.count('were read from copies'), 'replaced': logs.count('replaces host %d' % victim) if whole_host else 0}

def middle(values):
    values = sorted(values)
    return '%.3g (%.3g to %.3g)' % (values[len(values) // 2], values[0], values[-1]) if values else '-'

net = Network(HOSTS + 1)
try:
    print('seed %d; hosts: %s, %d ranks each; %d steps' % (SEED, 'network namespaces' if net.spaces else 'this host', LOCAL, STEPS))
    for mode in MODES:
        calm = Run(net, KIND + '-calm-' + mode, mode)
        calm.end()
        want, length = calm.result(), seconds_of(calm.steps())
        if mode == MODES[0]:
            first = want
        if want != first:
            fail('%s: the undisturbed run differs from that of %s' % (mode, MODES[0]))
        print('%s, %s: undisturbed: weights %s' % (KIND, mode, want[1]), flush=True)
        r, hits, tries = random.Random('%d %s %s' % (SEED, KIND, mode)), [], 0
        while len(hits) < COUNT and tries < 3 * COUNT:
            tries += 1
            hit = one(net, r, '%s-%s%d' % (KIND, mode, tries), mode, want, length)
            if hit:
                hits.append(hit)
                if len(hits) % 10 == 0:
                    print('%s, %s: %d kills, all equal so far' % (KIND, mode, len(hits)), flush=True)
        if len(hits) < COUNT:
            fail('%s, %s: only %d of %d runs were hit' % (KIND, mode, len(hits), tries))
        if mode == 'memory' and sum(h['memory'] > 0 for h in hits) < (COUNT + 1) // 2:
            fail('%s: most of the runs did not continue from memory' % KIND)
        print('%s, %s: %d kills (%d of hosts, %d of ranks) of %d runs: all end with the losses and weights of the undisturbed run, bit for bit; '
              'steps lost %s; seconds until the run was where it had been %s; continued from memory %d, with copies of a lost host %d, replaced by the spare %d' % (
                  KIND, mode, len(hits), sum(h['host'] for h in hits), sum(not h['host'] for h in hits), tries, middle([h['steps'] for h in hits]), middle([h['seconds'] for h in hits]),
                  sum(h['memory'] > 0 for h in hits), sum(h['copies'] > 0 for h in hits), sum(h['replaced'] > 0 for h in hits)), flush=True)
finally:
    if net.spaces:
        net.remove()

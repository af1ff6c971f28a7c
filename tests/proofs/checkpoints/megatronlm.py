"""Six steps of small models, of which one program does the first three and saves: then both go on.

usage: megatronlm.py BIN CHECKOUT CORPUS WORK [KIND...]
"""
import os, re, shutil, socket, subprocess, sys, sysconfig

binaries, checkout, corpus, work = sys.argv[1:5]
LLAMA = '--position-embedding-type rope --normalization RMSNorm --norm-epsilon 1e-6 --swiglu --disable-bias-linear --untie-embeddings-and-output-weights '
LATENT = LLAMA + '--multi-latent-attention --qk-layernorm --kv-lora-rank 12 --qk-head-dim 8 --qk-pos-emb-head-dim 8 --v-head-dim 6 --q-lora-rank 14 --rope-type yarn --rotary-base 500 ' \
    '--rotary-scaling-factor 4.0 --mscale 0.707 --mscale-all-dim 1.0 '
EXPERTS = '--moe-layer-freq [0,1] --num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 12 --moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-router-bias-update-rate 0.01 ' \
    '--moe-router-topk-scaling-factor 2.5 --moe-shared-expert-intermediate-size 16 --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.01 --moe-token-dispatcher-type alltoall '
AHEAD = '--mtp-loss-scaling-factor 0.3 --mtp-num-layers '
KINDS = {
    'gpt2': '',
    'llama': LLAMA + '--group-query-attention --num-query-groups 2',
    'mla': LATENT,
    'mla-moe': LATENT + EXPERTS,
    'mtp-1': LLAMA + AHEAD + '1',
    'mtp-2': LLAMA + AHEAD + '2',
    'mla-moe-mtp': LATENT + EXPERTS + AHEAD + '1',
}
RUN = f'''--num-layers 2 --hidden-size 32 --num-attention-heads 4 --ffn-hidden-size 64 --max-position-embeddings 32 --seq-length 32 --micro-batch-size 2 --global-batch-size 4 --train-iters 6
    --lr 3e-3 --min-lr 3e-4 --lr-decay-style cosine --tokenizer-type NullTokenizer --vocab-size 100 --make-vocab-size-divisible-by 56 --split 80,15,5 --eval-iters 0 --eval-interval 99
    --hidden-dropout 0 --attention-dropout 0 --data-path {corpus} --data-cache-path {work}/cache --log-interval 1 --seed 77 --clip-grad 1.0 --weight-decay 0.1 --adam-beta2 0.95'''
CPU = '''--transformer-impl local --distributed-backend gloo --num-workers 0 --no-gradient-accumulation-fusion --no-masked-softmax-fusion
    --no-bias-dropout-fusion --no-persist-layer-norm --no-rope-fusion'''
LAYOUTS = {'torch': '', 'torch_dist': '--world-size 2 --tensor-model-parallel-size 2 --sequence-parallel'}  # where we save
CLOSE = 4e-6  # two f32 programs, and a digit of rounding in what is printed


def helpers():
    """Megatron's C++ helpers of datasets."""
    folder = f'{checkout}/megatron/core/datasets'
    out = f"{folder}/helpers_cpp{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not os.path.exists(out):
        includes = subprocess.run([sys.executable, '-m', 'pybind11', '--includes'], capture_output=True, text=True, check=True).stdout.split()
        subprocess.run(['g++', '-O3', '-shared', '-std=c++17', '-fPIC', *includes, f'{folder}/helpers.cpp', '-o', out], check=True)


def curve(command, flags, env):
    """Loss, gradient norm and losses of MTP by iteration, as printed."""
    r = subprocess.run([*command, *RUN.split(), *flags.split()], capture_output=True, text=True, env=env)
    if r.returncode:
        sys.exit(f"FAIL {' '.join(command)} {flags}\n{r.stderr[-2000:]}")
    steps = re.finditer(r'iteration +(\d+)/.* lm loss: (\S+) .* grad norm: (\S+).*', r.stdout)
    return {int(m[1]): [float(x) for x in (m[2], m[3], *re.findall(r'mtp_\d+ loss: (\S+)', m[0]))] for m in steps}


def theirs(flags, names=''):
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        port = s.getsockname()[1]
    env = dict(os.environ, NAMES=names, CUDA_DEVICE_MAX_CONNECTIONS='1', RANK='0', WORLD_SIZE='1', LOCAL_RANK='0', MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port))
    return curve([sys.executable, '-W', 'ignore', os.path.dirname(os.path.abspath(__file__)) + '/megatronlm_cpu.py', checkout], f'{CPU} {flags}', env)


def ours(flags):
    return curve([binaries + '/pretrain_gpt'], '--padded-vocab-in-softmax ' + flags, os.environ)


def apart(a, b):
    """The largest relative difference. The second line that Megatron prints is the mean of the first two: it is left out."""
    if a.keys() != b.keys() or not {4, 6} <= a.keys() or any(len(a[n]) != len(b[n]) for n in a):
        return float('inf')
    rounded = lambda i: 5e-4 if i == 1 else 0  # norms have three decimals
    return max(max(abs(x - y) - rounded(i), 0) / abs(y) for n in (4, 6) for i, (x, y) in enumerate(zip(a[n], b[n])))


def main():
    helpers()
    failed = 0

    def check(kind, form, what, a, b):
        nonlocal failed
        off = apart(a, b)
        failed += not off <= CLOSE
        print(f"{'ok  ' if off <= CLOSE else 'FAIL'} {kind}, {form}: {what}: their numbers differ by {off:.1e}", flush=True)

    for kind in sys.argv[5:] or KINDS:
        for form, layout in LAYOUTS.items():
            save = f'{work}/save'
            begin, onward = f'{KINDS[kind]} --exit-interval 3 --ckpt-format {form} --save {save} --save-interval 3', f'{KINDS[kind]} --ckpt-format {form} --load {save}'
            # Norms in torch_dist have the names of Megatron's own modules, or those of Transformer Engine.
            for names in ('', 'engine') if form == 'torch_dist' else ('',):
                shutil.rmtree(save, ignore_errors=True)
                theirs(begin, names)
                check(kind, form, f"Megatron-LM saved{', with names of Transformer Engine' if names else ''}, both went on", ours(onward), theirs(onward, names))
            shutil.rmtree(save)
            ours(f'{begin} {layout}')
            mine = ours(onward)
            for names in ('', 'engine') if form == 'torch_dist' else ('',):
                check(kind, form, f"monotron saved{' under TP2' if layout else ''}, both went on{', Megatron-LM with names of Transformer Engine' if names else ''}", mine, theirs(onward, names))
    sys.exit(1 if failed else 0)


main()

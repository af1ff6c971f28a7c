"""A run trained here under TP2 x PP2, saved as torch_dist, is loaded by
megatron-core's dist_checkpointing into its own GPTModel on one rank: its logits
are ours.

usage: core.py GOLDEN_MODELS BIN WORK
"""
import contextlib, glob, json, os, subprocess, sys, warnings
warnings.filterwarnings('ignore')
import torch

golden, binaries, work = sys.argv[1:]
torch.distributed.init_process_group('gloo', init_method=f'file://{work}/rendezvous', rank=0, world_size=1)
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel import get_cuda_rng_tracker
from megatron.core.transformer import TransformerConfig

LAYERS, H, HEADS, FFN, POSITIONS, VOCAB = 4, 32, 4, 64, 32, 112
MODELS = {
    'gpt2': ('', dict(), dict(position_embedding_type='learned_absolute', share_embeddings_and_output_weights=True)),
    'llama': ('--swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights '
              '--group-query-attention --num-query-groups 2',
              dict(num_query_groups=2, gated_linear_unit=True, activation_func=torch.nn.functional.silu, add_bias_linear=False, normalization='RMSNorm'),
              dict(position_embedding_type='rope', share_embeddings_and_output_weights=False)),
}


def trained(name, flags):
    """Three steps here; the save folder."""
    save = os.path.join(work, 'core-' + name)
    r = subprocess.run([f'{binaries}/pretrain_gpt', *f'''--num-layers {LAYERS} --hidden-size {H} --num-attention-heads {HEADS} --ffn-hidden-size {FFN}
        --max-position-embeddings {POSITIONS} --seq-length {POSITIONS} --micro-batch-size 1 --global-batch-size 4 --train-iters 3 --lr 3e-3
        --tokenizer-type NullTokenizer --vocab-size 100 --make-vocab-size-divisible-by 56 --split 80,15,5 --eval-iters 0
        --hidden-dropout 0 --attention-dropout 0 --data-path {golden}/pretrain-gpt2/corpus --data-cache-path {work}/cache --world-size 4
        --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --ckpt-format torch_dist --save {save} --save-interval 3 {flags}'''.split()],
                       capture_output=True, text=True)
    if r.returncode:
        sys.exit(r.stderr)
    return save


def theirs(folder, config, more, ids):
    c = TransformerConfig(num_layers=LAYERS, hidden_size=H, num_attention_heads=HEADS, ffn_hidden_size=FFN, use_cpu_initialization=True,
                          hidden_dropout=0, attention_dropout=0, bias_activation_fusion=False, masked_softmax_fusion=False, bias_dropout_fusion=False,
                          apply_rope_fusion=False, persist_layer_norm=False, gradient_accumulation_fusion=False, **config)
    spec = get_gpt_layer_local_spec(normalization=config.get('normalization'))
    model = GPTModel(config=c, transformer_layer_spec=spec, vocab_size=VOCAB, max_sequence_length=POSITIONS, parallel_output=False, **more).eval()
    wanted = model.sharded_state_dict(metadata={'singleton_local_shards': False})
    state = dist_checkpointing.load(wanted, folder)
    model.load_state_dict({k: state[k] for k in wanted})
    tokens = torch.tensor([ids])
    later = torch.triu(torch.ones(len(ids), len(ids), dtype=torch.bool), 1)[None, None]
    with torch.no_grad():
        return model(tokens, torch.arange(len(ids))[None], later)[0]


def ours(save, ids):
    out = subprocess.run([f'{binaries}/monotron', 'logits', '--load', save, '--json', '--prompt-ids', *map(str, ids)], capture_output=True, text=True, check=True).stdout
    return torch.tensor([json.loads(l)['logits'] for l in out.splitlines()])


torch.cuda.current_device = lambda: 'cpu'  # where megatron-core keeps its scores
parallel_state.initialize_model_parallel(1, 1)
get_cuda_rng_tracker().fork = lambda *_: contextlib.nullcontext()  # dropout is off
failed = 0
for name, (flags, config, more) in MODELS.items():
    if name == 'gpt2':  # exact tanh GELU, as bias_gelu_fusion computes it
        config['activation_func'] = lambda x: 0.5 * x * (1 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))
    save = trained(name, flags)
    ids = [3, 14, 15, 92, 65, 35, 89, 79]
    mine = ours(save, ids)
    worst = (theirs(glob.glob(f'{save}/iter_*')[0], config, more, ids)[:, :mine.shape[1]] - mine).abs().max().item()
    failed += not worst < 1e-4
    print(f"{'ok  ' if worst < 1e-4 else 'FAIL'} {name}: trained here under TP2 x PP2, loaded by megatron-core's dist_checkpointing: logits differ by {worst:.1e}")
sys.exit(1 if failed else 0)

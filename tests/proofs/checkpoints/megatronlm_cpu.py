"""Runs pretrain_gpt.py of Megatron-LM on a CPU over gloo: what it asks of CUDA does nothing or is done on the CPU.

usage: [NAMES=engine] megatronlm_cpu.py CHECKOUT FLAGS...
"""
import contextlib, os, runpy, sys, types, typing
from multiprocessing import spawn
import torch
import torch._dynamo  # before what it lists is replaced


class Stream:
    """A stream or an event, of which everything is complete."""
    def __init__(self, *_, **__): pass
    def query(self): return True
    def elapsed_time(self, *_): return 0.0
    def record_event(self, *_): return Stream()
    def wait_stream(self, *_): pass
    wait_event = record = wait = synchronize = wait_stream


def nothing(*_, **__):
    return None


def zero(*_, **__):
    return 0


def on_cpu(make):
    """A function of torch whose device is the CPU, whatever is asked."""
    def made(*a, **k):
        if 'device' in k:
            k['device'] = 'cpu'
        return make(*a, **k)
    return made


def cuda():
    """torch.cuda and devices."""
    c, here = torch.cuda, torch.device('cpu')
    for name in 'set_device synchronize set_rng_state manual_seed manual_seed_all _lazy_call _lazy_init empty_cache ipc_collect reset_peak_memory_stats'.split():
        setattr(c, name, nothing)
    for name in 'memory_allocated max_memory_allocated memory_reserved max_memory_reserved'.split():
        setattr(c, name, zero)
    c.is_available = c.is_initialized = lambda: True
    c.device_count, c.current_device, c.get_device_name = lambda: 1, lambda: 'cpu', lambda *_: 'cpu'
    c.get_device_capability = lambda *_: (8, 0)
    c.get_device_properties = lambda *_: types.SimpleNamespace(name='cpu', total_memory=1 << 34, major=8, minor=0, multi_processor_count=1)
    c.get_rng_state = lambda *_: torch.get_rng_state()
    c.memory_stats, c.mem_get_info = lambda *_: {}, lambda *_: (1 << 34, 1 << 34)
    c.Stream = c.Event = Stream
    c.current_stream = c.default_stream = lambda *_: Stream()
    c.stream = lambda *_: contextlib.nullcontext()
    c.is_current_stream_capturing = lambda: False
    c.nvtx = types.SimpleNamespace(range_push=nothing, range_pop=nothing, mark=nothing, range=lambda *_, **__: contextlib.nullcontext())
    for name in 'FloatTensor HalfTensor BFloat16Tensor LongTensor IntTensor DoubleTensor ByteTensor'.split():
        setattr(c, name, getattr(torch, name))
    for name in ('tensor empty zeros ones full rand randn arange empty_like zeros_like ones_like full_like as_tensor linspace randint eye empty_strided randperm').split():
        setattr(torch, name, on_cpu(getattr(torch, name)))
    torch.accelerator.current_device_index, torch.accelerator.is_available = zero, lambda *_, **__: False
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *_, **__: self
    move, kind = torch.Tensor.to, torch.Tensor.type
    device = lambda x: here if isinstance(x, torch.device) or isinstance(x, str) and x.startswith('cuda') else x
    torch.Tensor.to = lambda self, *a, **k: move(self, *map(device, a), **{n: device(x) for n, x in k.items()})
    torch.Tensor.type = lambda self, *a, **k: kind(self, *a, **k) if a or k else kind(self).replace('torch.', 'torch.cuda.')  # clipping asks for it


def distributed():
    """Groups over gloo."""
    d = torch.distributed
    begin, group, wait = d.init_process_group, d.new_group, d.barrier
    less = lambda k, *names: {n: x for n, x in k.items() if n not in names}
    d.init_process_group = lambda *a, **k: begin(backend='gloo', **less(k, 'backend', 'device_id'))
    d.new_group = lambda *a, **k: group(*a, **dict(less(k, 'pg_options', 'device_id'), backend='gloo'))
    d.barrier = lambda *a, **k: wait(*a, **less(k, 'device_ids'))


def megatron():
    """What Megatron's modules for the CPU (--transformer-impl local) lack."""
    import megatron.training.initialize as initialize
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer import dot_product_attention, multi_token_prediction, transformer_layer
    from megatron.core.transformer.moe import moe_layer
    initialize._compile_dependencies = random._set_cuda_rng_state = nothing
    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    multi_token_prediction.is_inference_column_parallel_linear = lambda _: False  # a class that needs Transformer Engine
    # Attention whose values are narrower than its keys.
    attention, layer = dot_product_attention.DotProductAttention, transformer_layer.TransformerLayer
    begin, shard = attention.__init__, layer.sharded_state_dict

    def init(self, *a, k_channels=None, v_channels=None, **k):
        begin(self, *a, **k)
        if v_channels:
            self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition

    # The names of norms in torch_dist as with Transformer Engine, which fuses them with the layers behind them.
    def sharded(self, *a, **k):
        latent = self.config.multi_latent_attention
        fused = {'self_attention.q_layernorm.': 'self_attention.linear_q_up_proj.layer_norm_', 'self_attention.kv_layernorm.': 'self_attention.linear_kv_up_proj.layer_norm_'} \
            if latent else {'input_layernorm.': 'self_attention.linear_qkv.layer_norm_'}
        if not isinstance(self.mlp, moe_layer.MoELayer):
            fused['pre_mlp_layernorm.'] = 'mlp.linear_fc1.layer_norm_'
        self.submodules_config.sharded_state_dict_keys_map = fused
        return shard(self, *a, **k)

    attention.__init__ = init
    if os.environ.get('NAMES') == 'engine':
        layer.sharded_state_dict = sharded


def processes():
    """Processes that write files import their functions alone, not pretrain_gpt.py."""
    prepare = spawn.get_preparation_data
    spawn.get_preparation_data = lambda name: {k: v for k, v in prepare(name).items() if not k.startswith('init_main')}


if __name__ == '__main__':
    checkout = sys.argv.pop(1)
    sys.path.insert(0, checkout)
    typing.override = getattr(typing, 'override', lambda f: f)  # of Python 3.12
    torch.compile = lambda f=None, *_, **__: f or (lambda g: g)
    cuda()
    distributed()
    processes()
    megatron()
    runpy.run_path(checkout + '/pretrain_gpt.py', run_name='__main__')

"""Folders of quantised weights (FP8 by blocks, FP8 with a scale a weight, MXFP4 experts), made of random models: what we read of them
is byte for byte what transformers reads when it dequantises.

usage: quantized.py make FOLDER SEED     the folder of each KIND, and in KIND.json the SHA-256 of each tensor that transformers reads of it
       quantized.py check BIN WORK COUNT SEED
"""
import hashlib, json, os, random, shutil, subprocess, sys, tempfile, warnings
warnings.filterwarnings('ignore')
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, FineGrainedFP8Config, Mxfp4Config

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
KINDS = ('blocks', 'powers', 'edges', 'whole', 'mxfp4')


def deepseek(rng):
    return dict(model_type='deepseek_v3', vocab_size=32, hidden_size=64, intermediate_size=96, moe_intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=4, n_shared_experts=1, n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1, first_k_dense_replace=1, q_lora_rank=32,
                kv_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16, max_position_embeddings=64, tie_word_embeddings=False)


def ministral(rng):
    return dict(model_type='ministral3', vocab_size=32, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                max_position_embeddings=64, tie_word_embeddings=False)


def gptoss(rng):
    return dict(model_type='gpt_oss', vocab_size=32, hidden_size=64, intermediate_size=32 * rng.choice([1, 2]), num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=8, max_position_embeddings=64, tie_word_embeddings=False,
                rope_parameters={'rope_type': 'yarn', 'rope_theta': 150000.0, 'factor': 32.0, 'beta_fast': 32.0, 'beta_slow': 1.0, 'truncate': False,
                                 'original_max_position_embeddings': 4096})


def build(config):
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)).to(torch.bfloat16)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(0, 0.5).mul_(torch.exp(2 * torch.randn(p.shape[:1] + (1,) * (p.dim() - 1))))
    return model


def fp8(w, block, powers, scale_type):
    """DeepSeek's rule: largest magnitude of a block by 448; blocks at the edges are what is left of them."""
    codes = torch.empty(w.shape, dtype=torch.float8_e4m3fn)
    h, v = block or w.shape
    scales = torch.empty(-(-w.shape[0] // h), -(-w.shape[1] // v))
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            part = w[i * h:(i + 1) * h, j * v:(j + 1) * v].float()
            s = part.abs().max() / 448
            if powers:
                s = torch.pow(2.0, torch.ceil(torch.log2(s)))
            scales[i, j] = s
            s = s.to(scale_type).float()
            codes[i * h:(i + 1) * h, j * v:(j + 1) * v] = (part / s).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes, scales


def dequantise_edges(codes, scales, block):
    """As DeepSeek's weight_dequant: an element's scale is that of its place by the block size."""
    rows = torch.arange(codes.shape[0]) // block[0]
    columns = torch.arange(codes.shape[1]) // block[1]
    return (codes.float() * scales.float()[rows][:, columns]).to(torch.bfloat16)


def make(kind, folder, rng):
    """Writes folder/quantised and folder/dequantised."""
    there, read = os.path.join(folder, 'quantised'), os.path.join(folder, 'dequantised')
    model = build({'mxfp4': gptoss, 'whole': ministral}.get(kind, deepseek)(rng))
    model.save_pretrained(there)
    weights, path = {}, os.path.join(there, 'model.safetensors')
    block = {'blocks': (16, 8), 'powers': (8, 32), 'edges': (24, 20)}.get(kind)
    expected = {}
    for name, w in load_file(path).items():
        linear = w.dim() == 2 and '_proj' in name
        if kind == 'mxfp4' and name.endswith(('experts.gate_up_proj', 'experts.down_proj')):
            codes = torch.randint(0, 256, (w.shape[0], w.shape[2], w.shape[1] // 32, 16), dtype=torch.uint8)
            weights[name + '_blocks'] = codes
            weights[name + '_scales'] = torch.randint(100, 140, codes.shape[:3], dtype=torch.uint8)
            weights[name + '_scales'].view(-1)[:6] = torch.tensor([0, 1, 2, 3, 110, 240], dtype=torch.uint8)
        elif kind != 'mxfp4' and linear:
            scale_type = {'whole': torch.bfloat16, 'powers': torch.float8_e8m0fnu}.get(kind, torch.float32)
            codes, scales = fp8(w, block, kind == 'powers', scale_type)
            weights[name], module = codes, name.removesuffix('.weight')
            weights[module + '.weight_scale_inv'] = scales.to(scale_type) if block else scales.to(scale_type).reshape(())
            if kind == 'whole':
                weights[module + '.activation_scale'] = torch.tensor(0.25, dtype=torch.bfloat16)
            if kind == 'edges':
                expected[name] = dequantise_edges(codes, scales, block)
        else:
            weights[name] = w.float() if '.mlp.gate.' in name else w  # as its class keeps it
    save_file(weights, path, {'format': 'pt'})
    config = json.load(open(os.path.join(there, 'config.json')))
    if kind == 'mxfp4':
        config['quantization_config'] = {'quant_method': 'mxfp4', 'modules_to_not_convert': ['model.layers.*.self_attn', 'model.layers.*.mlp.router', 'model.embed_tokens', 'lm_head']}
        whole = Mxfp4Config(dequantize=True)
    else:
        q = {'quant_method': 'fp8', 'activation_scheme': 'static' if kind == 'whole' else 'dynamic', 'weight_block_size': block and list(block)}
        if kind == 'powers':
            q['scale_fmt'] = 'ue8m0'
        if kind in ('blocks', 'edges'):
            q['fmt'] = 'e4m3'
        config['quantization_config'] = q
        whole = FineGrainedFP8Config(dequantize=True, weight_block_size=block and list(block), activation_scheme=q['activation_scheme'])
    config['dtype'] = 'bfloat16'
    json.dump(config, open(os.path.join(there, 'config.json'), 'w'), indent=2)
    if kind == 'edges':  # whose blocks transformers refuses
        plain = {n: expected.get(n, w) for n, w in weights.items() if not n.endswith('_scale_inv')}
        os.makedirs(read)
        save_file(plain, os.path.join(read, 'model.safetensors'), {'format': 'pt'})
    else:
        whole = AutoModelForCausalLM.from_pretrained(there, quantization_config=whole, dtype='auto')
        whole.config.__dict__.pop('quantization_config', None)
        whole.hf_quantizer = None
        whole._weight_conversions = None
        whole.save_pretrained(read)
    config.pop('quantization_config')
    json.dump(config, open(os.path.join(read, 'config.json'), 'w'), indent=2)


def check(binary, work, count, seed):
    failed = compared = 0
    for n in range(count):
        for kind in KINDS:
            rng = random.Random(seed + n)
            torch.manual_seed(seed + n)
            folder = os.path.join(work, f'{kind}-{n}')
            make(kind, folder, rng)
            out = os.path.join(folder, 'ours')
            r = subprocess.run([binary + '/monotron', 'convert', '--from', 'hf', '--to', 'hf', '--verify', '--input', os.path.join(folder, 'quantised'), '--output', out], capture_output=True, text=True)
            if r.returncode:
                print(f'FAILED {folder}: {r.stderr.strip()}')
                failed += 1
                continue
            ours, theirs = load_file(os.path.join(out, 'model.safetensors')), load_file(os.path.join(folder, 'dequantised', 'model.safetensors'))
            for name in sorted(ours.keys() | theirs.keys()):
                a, b = ours.get(name), theirs.get(name)
                compared += 1
                if a is None or b is None or a.dtype != b.dtype or not torch.equal(a.view(torch.uint8), b.contiguous().view(torch.uint8)):
                    print(f'FAILED {folder}: {name} differs')
                    failed += 1
    print(f'{compared} tensors of {count * len(KINDS)} folders compared by their bytes with what transformers dequantises, {failed} failed')
    return failed


if sys.argv[1] == 'make':
    for kind in KINDS:
        torch.manual_seed(int(sys.argv[3]))
        with tempfile.TemporaryDirectory() as work:
            make(kind, work, random.Random(int(sys.argv[3])))
            shutil.move(os.path.join(work, 'quantised'), os.path.join(sys.argv[2], kind))
            sums = {n: hashlib.sha256(w.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
                    for n, w in load_file(os.path.join(work, 'dequantised', 'model.safetensors')).items()}
        json.dump(sums, open(os.path.join(sys.argv[2], kind + '.json'), 'w'), indent=1)
else:
    sys.exit(1 if check(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])) else 0)

"""Writes what transformers' classes make of configs that lack a key: for each kind of model of shapes.py a complete
config.json and, by the key that is taken away, the values that the class then has. The reader must understand the
config without the key as it does the config with these values (TestDefaultsOfClasses).

usage: defaults.py OUTPUT (megatron/checkpoint/hf/testdata/defaults.json)
"""
import json, random, sys
import shapes
from transformers import AutoConfig, CONFIG_MAPPING, logging

logging.set_verbosity_error()
# Keys that say nothing of the model.
FREE = {'transformers_version', 'architectures', 'dtype', 'output_hidden_states', 'output_attentions', 'return_dict', 'chunk_size_feed_forward', 'is_encoder_decoder', 'id2label', 'label2id', 'problem_type',
        '_name_or_path', 'use_cache', 'bos_token_id', 'eos_token_id', 'pad_token_id', 'initializer_range', 'pretraining_tp', 'output_router_logits'}


def complete(settings):
    c = AutoConfig.for_model(**settings).to_dict()
    return {k: c[k] for k in sorted(c.keys() - FREE)}


def finite(v):
    """Infinity, which JSON has not, as transformers writes it."""
    return {k: finite(x) for k, x in v.items()} if isinstance(v, dict) else [finite(x) for x in v] if isinstance(v, (list, tuple)) else {'__float__': 'Infinity'} if v == float('inf') else v


out = {}
for kind in sorted(shapes.SHAPES.keys() - {'kimi_k2'}):  # which has no class of transformers
    c, settings = shapes.settings(kind, random.Random(1))
    full = complete(settings)
    known = CONFIG_MAPPING[settings['model_type']]
    absent = {}
    for key in full.keys() - {'model_type'}:
        if key.endswith('dropout') or key not in known.__dataclass_fields__ and key not in known.attribute_map.values():
            continue
        try:
            without = complete({k: v for k, v in full.items() if k != key})
        except Exception:
            continue  # the class itself refuses it
        absent[key] = {k: v for k, v in without.items() if full.get(k) != v}
    out[kind] = {'config': dict(full, model_type=c['model_type']), 'absent': absent}
with open(sys.argv[1], 'w') as f:
    f.write('{\n' + ',\n'.join(f'{json.dumps(k)}: {json.dumps(finite(v), sort_keys=True)}' for k, v in out.items()) + '\n}\n')

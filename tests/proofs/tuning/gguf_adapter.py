"""llama.cpp with WORK/base.gguf and WORK/adapter.gguf gives the log-probabilities of WORK/merged.gguf, which differ from those without the adapter."""
import json
import os
import sys
import urllib.request

import xllamacpp


def logprobs(path, adapter=None):
    p = xllamacpp.CommonParams()
    p.model.path, p.n_ctx, p.n_parallel, p.warmup = path, 128, 1, False
    if adapter:
        info = xllamacpp.CommonAdapterLoraInfo()
        info.path, info.scale = adapter, 1.0
        p.lora_adapters = [info]
    server = xllamacpp.Server(p)
    body = {"prompt": [5, 17, 40, 8, 23], "n_predict": 1, "n_probs": 400, "temperature": 0.0, "logit_bias": [[3, 100.0]], "cache_prompt": False}
    r = urllib.request.Request(server.listening_address + "/completion", json.dumps(body).encode(), {"Content-Type": "application/json"})
    answer = json.loads(urllib.request.urlopen(r, timeout=120).read())
    return {x["id"]: x["logprob"] for x in answer["completion_probabilities"][0]["top_logprobs"]}


work = sys.argv[1]
file = lambda name: os.path.join(work, name)
plain, adapted, merged = logprobs(file("base.gguf")), logprobs(file("base.gguf"), file("adapter.gguf")), logprobs(file("merged.gguf"))
common = sorted(set(plain) & set(adapted) & set(merged))
off, moved = max(abs(adapted[i] - merged[i]) for i in common), max(abs(adapted[i] - plain[i]) for i in common)
print(f"llama.cpp: {len(common)} log-probabilities with the adapter's file within {off:.1e} of the merged model's (1e-3); the adapter moves them by {moved:.2g}")
sys.exit(not (off <= 1e-3 and moved > 0.1 and len(common) > 100))

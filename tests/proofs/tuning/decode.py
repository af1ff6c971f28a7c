"""Prints the tokens a second of single completions of a server, alternating between the base model and an adapter: best of each, and their ratio.

usage: decode.py URL BASE ADAPTER TOKENS ROUNDS"""
import json
import sys
import time
import urllib.request

url, base, adapter, tokens, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])


def rate(model):
    body = {"model": model, "prompt": "The first ten numbers are", "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    start = time.perf_counter()
    answer = json.load(urllib.request.urlopen(request))
    assert answer["usage"]["completion_tokens"] == tokens, answer["usage"]
    return tokens / (time.perf_counter() - start)


best = {base: 0.0, adapter: 0.0}
for _ in range(rounds):
    for model in best:
        best[model] = max(best[model], rate(model))
print(f"decode   {best[adapter]:6.1f} {best[base]:6.1f}   {best[adapter] / best[base]:.2f}  (with the adapter, without)")

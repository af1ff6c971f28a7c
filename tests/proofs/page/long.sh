#!/bin/bash
# Claim: the page of 100,000 steps is drawn in under a second and holds less than 50 MB in the browser, from disk and from `watch`.
source "$(dirname "$0")/../common.sh"
command -v chromium >/dev/null || { echo "skipped: no chromium here (apt-get install chromium)"; exit 0; }
mkdir -p "$work/run"
"$python" - >"$work/run/steps.jsonl" <<'P'
import json, math, random
random.seed(1)
for i in range(1, 100001):
    loss = 2 + 8 * math.exp(-i / 20000) + random.gauss(0, 0.05)
    print(json.dumps({"time": f"2026-11-{1 + i // 86400 % 28:02d}T{i // 3600 % 24:02d}:{i // 60 % 60:02d}:{i % 60:02d}Z", "iteration": i, "consumed_samples": 8 * i,
        "consumed_tokens": 2048 * i, "loss": {"lm loss": loss}, "train_iters": 200000, "learning_rate": 1e-3 * math.cos(i / 1e5), "weight_decay": 0.1,
        "global_batch_size": 8, "loss_scale": 1, "grad_norm": abs(random.gauss(1, 0.2)), "seconds": 1 + random.random() / 10,
        "phase_seconds": {"data": 0.01, "forward": 0.3, "backward": 0.6, "optimizer": 0.05}, "tokens_per_second": 2048 / (1 + random.random() / 10), "mfu": 0.4,
        "memory_bytes": 1 << 30, "planned_memory_bytes": 1 << 30}))
    if i % 1000 == 0:
        print(json.dumps({"time": "2026-11-01T00:00:00Z", "iteration": i, "consumed_tokens": 2048 * i, "loss": {"lm loss": loss + 0.1}, "validation": "validation"}))
P
bin/monotron report "$work/run" --output "$work/report.html"
bin/monotron watch "$work/run" --addr 127.0.0.1:0 2>"$work/notes" &
trap 'kill $!' EXIT
until grep -q 'http://' "$work/notes"; do sleep 0.1; done
"$python" tests/proofs/page/long.py "file://$work/report.html" "$(sed -n 's|.*\(http://[^ ]*/\).*|\1|p' "$work/notes")"

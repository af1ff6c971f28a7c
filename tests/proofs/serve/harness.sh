#!/bin/bash
# Claim: lm-evaluation-harness's local-completions gets from `monotron serve` the likelihoods that `monotron logits` computes.
# PYTHON has lm-eval, with its extra [api], and transformers.
source "$(dirname "$0")/../common.sh"
source "$(dirname "$0")/server.bash"
peer lm_eval transformers tenacity
serve
"$python" "$(dirname "$0")/harness.py" "$url" "$shared/golden/serve/model" "$work" || { tail -3 "$work/harness.log"; echo FAILED; exit 1; }
nothing_left

#!/bin/bash
# Claim: the `openai` package, as anybody uses it, gets from `monotron serve` what transformers computed: golden/serve/client.py
# passes, its optional checks too, and no block of keys and values stays in use.
source "$(dirname "$0")/../common.sh"
source "$(dirname "$0")/server.bash"
peer openai
serve
"$python" "$shared/golden/serve/client.py" --base-url "$url/v1" --optional || { echo "FAILED"; exit 1; }
nothing_left

#!/bin/bash
# Claim: under many clients, good and bad ones (who leave, read slowly, send garbage, oversized bodies or floods of headers), every
# good request gets its one answer, no block stays in use, and memory does not grow. REQUESTS (4000) says how many.
source "$(dirname "$0")/../common.sh"
source "$(dirname "$0")/server.bash"
serve --max-num-seqs 16 --kv-cache-memory 1
"$python" "$(dirname "$0")/load.py" "$url" "${REQUESTS:-4000}" "$server"
nothing_left

#!/bin/bash
# Claim: under many clients, good and bad ones (who leave, read slowly, send garbage, oversized bodies or floods of headers), every
# good request gets its one answer, no block stays in use, and memory does not grow. Others ask for more than their share: huge numbers,
# bodies, schemas, biases. REQUESTS (4000) says how many, SECONDS_LONG for how long instead.
source "$(dirname "$0")/../common.sh"
source "$(dirname "$0")/server.bash"
serve --max-num-seqs 16 --kv-cache-memory 1
"$python" "$(dirname "$0")/load.py" "$url" "${REQUESTS:-4000}" "$server" ${SECONDS_LONG:+"$SECONDS_LONG"}
nothing_left

#!/bin/bash
# Claim: the chat page shows what the server answers, in a browser without network, on a desk and on a phone, light and dark.
# Pictures are left in PICTURES, where that is set.
source "$(dirname "$0")/../common.sh"
source "$(dirname "$0")/server.bash"
chromium=$(command -v chromium || command -v google-chrome) || { echo "skipped: no chromium here (apt-get install chromium)"; exit 0; }
serve
pictures=${PICTURES:-$work/pictures}
mkdir -p "$pictures"
"$python" "$(dirname "$0")/page.py" "$url" "$pictures" "$chromium" || { echo FAILED; exit 1; }
nothing_left

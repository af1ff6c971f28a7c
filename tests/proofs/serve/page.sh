#!/bin/bash
# Claim: the chat page shows what the server answers, in a browser without network, on a desk and on a phone, light and dark,
# also by the keyboard alone. Pictures are left in PICTURES, where that is set; AXE names axe.min.js of npm's axe-core, by whose rules
# of WCAG 2.2 AA each picture is then checked.
source "$(dirname "$0")/../common.sh"
source "$(dirname "$0")/server.bash"
chromium=$(command -v chromium || command -v google-chrome) || { echo "skipped: no chromium here (apt-get install chromium)"; exit 0; }
serve
pictures=${PICTURES:-$work/pictures}
mkdir -p "$pictures"
"$python" "$(dirname "$0")/page.py" "$url" "$pictures" "$chromium" || { echo FAILED; exit 1; }
nothing_left

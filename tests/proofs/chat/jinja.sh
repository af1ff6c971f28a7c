#!/bin/bash
# Claim: chat templates give jinja2's text, or an error. COUNT (2,500) random templates for each of SEEDS (five), every
# construct in them; 0 differences. (tests/proofs/chat/jinja.py says what is counted.)
source "$(dirname "$0")/../common.sh"
source "$(dirname "$0")/common.bash"
"$python" tests/proofs/chat/jinja.py "$work/jinja.test" "${COUNT:-2500}" ${SEEDS:-1 2 3 4 5} || { echo FAILED; exit 1; }

# Rates of saving, loading, resharding and converting 1.5 GB against a raw writer
# and reader of the same disk, measured beside each, and what --async-save costs a step; then torch's own, where
# Python has it. On a machine that does nothing else.
. "$(dirname "$0")/../common.sh"
MONOTRON_SPEED=$work go test -count=1 -v -run TestSpeed ./tools/convert | grep -v '^=== '
peer torch
"$python" tests/proofs/checkpoints/torch_speed.py "$work"

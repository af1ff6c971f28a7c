# Rates of saving, loading, resharding and converting 1.5 GB against a raw writer
# and reader of the same disk, measured beside each, and what --async-save costs a step; then torch's own, where
# Python has it. On a machine that does nothing else.
. "$(dirname "$0")/../common.sh"
TMPDIR=$work "$GO" test -run '^$' -bench '^BenchmarkSpeed$' -benchtime 5x -timeout 0 ./tools/convert
peer torch
"$python" tests/proofs/checkpoints/torch_speed.py "$work"

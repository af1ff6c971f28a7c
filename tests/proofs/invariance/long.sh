# Claim: a run of STEPS (300) steps with --layout-invariant ends on one hash under COUNT (28) layouts of 1 to 8 ranks and micro-batch sizes, as goroutines, as
# processes over shared memory, Gloo and TCP, and with the instructions of AVX2 alone; of the model of 1M parameters also by portable
# C. MODEL: 1m or 30m. PRECISION: f32 (default), bf16 or fp16. SEED draws the layouts. FIRST (0): the
# run to begin with, after an interruption.
. "$(dirname "$0")/../common.sh"
python3 "$(dirname "$0")/long.py" "$PWD/bin" "$work" "${SEED:-1}" "${COUNT:-28}" "${STEPS:-300}" "${MODEL:-1m}" "${FIRST:-0}"

# Cost of --layout-invariant: steps of GPT-2 124M with 4 x 512 tokens, with and without the flag in turn, in f32 and bf16, on one rank
# and on two by data and by tensor parallelism; then one step of each on one rank by its parts. The numbers mean something on a quiet
# machine alone: the load is printed with them. ROUNDS (3): runs of each, of which the best step counts; STEPS (4): steps of a run.
. "$(dirname "$0")/../common.sh"
python3 "$(dirname "$0")/cost.py" "$PWD/bin" "$work" "${ROUNDS:-3}" "${STEPS:-4}"
echo "load while it ran: $(cut -d' ' -f1-3 /proc/loadavg)"

# Runs with --layout-invariant that are killed at random moments and go on, each time under a
# random other layout, end on the hash of an uninterrupted run of one rank. SEED, COUNT (kills).
. "$(dirname "$0")/../common.sh"
python3 "$(dirname "$0")/kills.py" "$PWD/bin/pretrain_gpt" "$work" "${SEED:-1}" "${COUNT:-500}"

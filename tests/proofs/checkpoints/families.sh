# Random models of every family through transformers: what we read and what we write
# give its logits. COUNT a family (40), SEED; FAMILIES, or all.
. "$(dirname "$0")/../common.sh"
peer torch transformers safetensors
"$python" -W ignore tests/proofs/checkpoints/families.py bin "$work" "${COUNT:-40}" "${SEED:-1}" ${FAMILIES:-}

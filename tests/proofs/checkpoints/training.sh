# Random tiny models of families through transformers in float64: our logits, gradients, three steps of
# AdamW and greedy texts are theirs. COUNT a family (40), SEED; FAMILIES, or all (shapes.py).
. "$(dirname "$0")/../common.sh"
peer torch transformers safetensors
"$python" -W ignore tests/proofs/checkpoints/training.py bin "$work" "${COUNT:-40}" "${SEED:-1}" ${FAMILIES:-}

# Random tiny models of every family: our logits are transformers', and Hugging Face folders that went by way of native, torch and
# torch_dist have every byte of every tensor, the settings and, in transformers, every bit of the logits of the folder they came from.
# COUNT a kind (40), SEED; FAMILIES, or all (shapes.py).
. "$(dirname "$0")/../common.sh"
peer torch transformers safetensors
"$python" -W ignore tests/proofs/checkpoints/trips.py bin "$work" "${COUNT:-40}" "${SEED:-1}" ${FAMILIES:-}

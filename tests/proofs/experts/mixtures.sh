# Small mixtures made by transformers: our logits and greedy ids are theirs, what we write of
# them is theirs bit for bit, and twelve steps of training are torch's, on one rank and with
# experts over ranks, also with the balancing loss of those that compute one. DeepSeek's shapes
# whose attention is Llama's are put together from transformers' parts. SEED, FAMILIES.
. "$(dirname "$0")/../common.sh"
peer torch transformers safetensors
"$python" -W ignore tests/proofs/experts/mixtures.py bin "$work" "${SEED:-1}" ${FAMILIES:-}

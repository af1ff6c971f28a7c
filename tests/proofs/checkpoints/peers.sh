# What we write is read by the programs it is for: Hugging Face folders by
# transformers (logits against the golden cases', exact weights), nanoGPT's and
# Megatron's files by torch.load(weights_only=True), torch_dist by PyTorch's own
# reader of distributed checkpoints, and by megatron-core's into its own model.
. "$(dirname "$0")/../common.sh"
need "$shared/golden/checkpoint"
peer torch transformers safetensors
"$python" -W ignore tests/proofs/checkpoints/peers.py "$shared/golden" bin/monotron "$work"
peer megatron.core
"$python" tests/proofs/checkpoints/core.py "$shared/golden/model" bin "$work"

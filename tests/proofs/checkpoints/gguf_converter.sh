# GGUF files that we write are those of llama.cpp's own converter: of a random model of each family that transformers saves,
# the same metadata but names, the same tensors in types, shapes and bytes, in F32, BF16 and Q8_0. Files of the converter are
# read back as folders with the same weights and, in transformers, the same logits. LLAMA_CPP is a folder with
# convert_hf_to_gguf.py and gguf-py, as in the sources of llama.cpp or of llama-cpp-python (vendor/llama.cpp).
. "$(dirname "$0")/../common.sh"
[ -n "${LLAMA_CPP:-}" ] || { echo "skipped: set LLAMA_CPP to the sources of llama.cpp"; exit 0; }
need "$LLAMA_CPP/convert_hf_to_gguf.py"
peer numpy torch transformers safetensors
"$python" -W ignore tests/proofs/checkpoints/gguf_converter.py "$LLAMA_CPP" bin/monotron "$work" "$@"

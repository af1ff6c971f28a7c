# FP8 and MXFP4 weights of random models are read as transformers dequantises them, byte for byte. COUNT a kind (10), SEED.
. "$(dirname "$0")/../common.sh"
peer torch transformers safetensors accelerate
"$python" -W ignore tests/proofs/checkpoints/quantized.py check bin "$work" "${COUNT:-10}" "${SEED:-1}"

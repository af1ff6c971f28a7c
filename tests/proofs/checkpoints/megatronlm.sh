# The real Megatron-LM continues what we saved, and we continue what it saved, in the formats torch and torch_dist: dense, MLA, MoE and
# MTP models. Losses, gradient norms and losses of MTP are those of the program that saved. MEGATRON_LM is a checkout of Megatron-LM
# (commit d98e8a64), PYTHON has torch and what Megatron-LM imports; KINDS, or all.
. "$(dirname "$0")/../common.sh"
need "$shared/golden/model/pretrain-gpt2"
need "${MEGATRON_LM:-a checkout of Megatron-LM (MEGATRON_LM)}"
peer torch einops pybind11 psutil
"$python" -W ignore tests/proofs/checkpoints/megatronlm.py bin "$MEGATRON_LM" "$shared/golden/model/pretrain-gpt2/corpus" "$work" ${KINDS:-}

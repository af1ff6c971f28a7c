# The optimizer's state in Megatron's formats is taken by torch's own AdamW, through
# megatron-core's load_state_dict.
. "$(dirname "$0")/../common.sh"
need "$shared/golden/model"
peer torch megatron.core
"$python" -W ignore tests/proofs/checkpoints/adam.py "$shared/golden/model" bin "$work"

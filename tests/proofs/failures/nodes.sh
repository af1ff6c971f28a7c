# COUNT (50) kills -9 for each of disk, memory and spare: a random rank, or a complete host (a network
# namespace, or where those are not permitted this host) at a random moment of a run of two hosts. After a lost host the same
# command starts there again, as a scheduler does it; with a spare nothing does. Each run must end with
# the losses and the weights of the undisturbed one. Prints steps and seconds lost. SEED repeats ranks and moments.
# Then TUNED (10) kills of hosts for each of KINDS of tuning, from memory alone: adapters (lora, dora, over NF4 weights, without
# their base in checkpoints), preferences (all weights, an adapter, another reference) and rewards.
. "$(dirname "$0")/../common.sh"
"$python" tests/proofs/failures/nodes.py "$PWD/bin/monotron" "$work" "${SEED:-1}" "${COUNT:-50}" pretraining ${MODES-disk memory spare}
[ -e "$shared/golden/dpo" ] || { echo "tuning is skipped: $shared/golden/dpo is not here (set MONOTRON_SHARED)"; exit 0; }
base=$work/base
mkdir -p "$base" "$work/reference"
cp "$shared/golden/dpo/config.json" "$shared/golden/sft/chat_template.jinja" "$shared/golden/chat/tokenizer.json" "$base"
cp "$shared/golden/dpo/weights.safetensors" "$base/model.safetensors"
cp "$shared/golden/dpo/config.json" "$work/reference"
cp "$shared/golden/dpo/reference.safetensors" "$work/reference/model.safetensors"
cp "$shared/golden/sft/messages.jsonl" "$work/rows.jsonl"
cp "$shared/golden/dpo/messages.jsonl" "$work/pairs.jsonl"
for i in $(seq 1 20); do echo "{\"prompt\": \"Count $i and\"}"; done >"$work/prompts.jsonl"
for kind in ${KINDS-lora dora nf4 apart dpo dpo-lora kto-reference grpo}; do
  "$python" tests/proofs/failures/nodes.py "$PWD/bin/monotron" "$work" "${SEED:-1}" "${TUNED:-10}" "$kind" memory
done

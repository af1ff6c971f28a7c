# Greedy and beam search, bans of repeated n-grams, length penalties, early
# stopping: every id equals transformers', for a GPT-2 and a Llama, on one rank and
# on ranks that share the model by tensors, by stages or both; and what each rank
# needs, in f32 and f16.
. "$(dirname "$0")/../common.sh"
need "$shared/golden/model/generation-gpt2"
peer torch transformers
"$python" tests/proofs/checkpoints/generate.py "$shared/golden/model" bin/monotron "$work"
for precision in --fp32 --fp16; do
  echo "memory with $precision:"
  for n in 1 2 4; do
    bin/monotron generate --load "$work/generation-gpt2" $precision --tensor-model-parallel-size $n --num-beams 5 --no-repeat-ngram-size 4 --max-length 15 \
      --stop-token none --prompt-ids 84 104 101 2>&1 >/dev/null | grep memory
  done
done

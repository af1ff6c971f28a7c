# Greedy and beam search, bans of repeated n-grams, length penalties, early
# stopping: every id equals transformers', for a GPT-2 and a Llama.
. "$(dirname "$0")/common.sh"
need "$shared/golden/model/generation-gpt2"
peer torch transformers
"$python" scripts/shows-d/generate.py "$shared/golden/model" bin/monotron "$work"

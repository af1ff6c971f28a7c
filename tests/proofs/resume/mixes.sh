#!/usr/bin/env bash
# Claim (docs/parallel.md): COUNT random models and features, each stopped half-way in one random layout and continued in another, have
# the losses of an undisturbed run but for the flags that the page lists. SEED draws them.
. "$(dirname "$0")/../common.sh"
"$python" - "$work/text.jsonl" <<'E'
import json, random, sys
r = random.Random(0)
with open(sys.argv[1], "w") as f:
    for _ in range(400):
        f.write(json.dumps({"text": " ".join(str(r.randrange(198)) for _ in range(r.randrange(10, 80)))}) + "\n")
E
bin/preprocess_data --input "$work/text.jsonl" --output-prefix "$work/d" --tokenizer-type NullTokenizer --vocab-size 200 --append-eod --workers 1
"$python" "$(dirname "$0")/mixes.py" bin/monotron "$work/d_text_document" "${SEED:-1}" "${COUNT:-60}" || { echo FAILED; exit 1; }

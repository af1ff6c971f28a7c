#!/bin/bash
# Claim: with response_format, texts are JSON of the schema that a client sends: 4 times 200 random schemas by the `openai` package,
# each text that ends checked by the `jsonschema` package.
source "$(dirname "$0")/../common.sh"
source "$(dirname "$0")/server.bash"
peer openai jsonschema
serve
for seed in 1 2 3 4; do
  "$python" "$(dirname "$0")/schemas.py" "$url/v1" 200 "$seed" || { echo "FAILED"; exit 1; }
done
nothing_left

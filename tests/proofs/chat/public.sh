#!/bin/bash
# Claim: none of the chat templates in TRL's wheel is refused, and each gives jinja2's text for conversations with and without
# tools, parts, reasoning and documents. The wheel is fetched into .tools.
source "$(dirname "$0")/../common.sh"
source "$(dirname "$0")/common.bash"
templates=.tools/trl-1.16/trl/chat_templates
if [ ! -d $templates ]; then
  "$python" -m pip download -q --disable-pip-version-check --no-deps -d .tools/trl-1.16 'trl==1.16.*' || { echo "skipped: TRL's wheel could not be fetched"; exit 0; }
  "$python" -m zipfile -e .tools/trl-1.16/trl-*.whl .tools/trl-1.16
fi
"$python" tests/proofs/chat/public.py "$work/jinja.test" $templates "$shared/golden/chat/conversations.json" || { echo FAILED; exit 1; }

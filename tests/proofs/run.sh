#!/usr/bin/env bash
# Long proofs, one after another: all, or those named as SUBJECT or SUBJECT/NAME. Tells the
# seconds of each and at the end which have failed. Called by make proofs; bin/ must be built.
set -u
cd "$(dirname "$0")" || exit 1
[ $# -gt 0 ] || set -- */
proofs=()
for name in "$@"; do
  found=("${name%/}"/*.sh)
  [ ! -e "$name.sh" ] || found=("$name.sh")
  [ -e "${found[0]}" ] || { echo "no proof is called $name; there are: $(ls */*.sh | sed 's/\.sh$//' | tr '\n' ' ')" >&2; exit 2; }
  proofs+=("${found[@]}")
done
failed=()
for proof in "${proofs[@]}"; do
  name=${proof%.sh} verdict=ok start=$SECONDS
  echo "== $name"
  bash "$PWD/$proof" || { verdict=FAILED; failed+=("$name"); }
  echo "== $name: $verdict, $((SECONDS - start)) s"
done
[ ${#failed[@]} -eq 0 ] || { echo "FAILED: ${failed[*]} (again alone: bash tests/proofs/run.sh NAME)"; exit 1; }

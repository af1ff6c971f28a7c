# Sourced by the proofs beside it: where things are, and how a run is counted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
shared=${MONOTRON_SHARED:-$(realpath -m ../shared)}
work=${WORK:-$(mktemp -d)}
mkdir -p "$work"
[ -n "${WORK:-}" ] || trap 'rm -rf "$work"' EXIT

need() { # file: ends the proof where it is not there
  [ -e "$1" ] || { echo "skipped: $1 is not here (set MONOTRON_SHARED)"; exit 0; }
}

# losses of a --log-jsonl file: "iteration loss grad_norm", as printed
losses() {
  grep -v '"validation"' "$1" | sed -E 's/.*"iteration":([0-9]+),.*"lm loss":([^,}]+).*/\1 \2/' | sort -n -u -k1,1
}

# weights: the hash of all weights of a save folder's latest checkpoint
weights() { bin/monotron inspect checkpoint --verify --json "$1" | sed -nE 's/.*"weights_hash": *"([^"]+)".*/\1/p'; }

# Sourced by the proofs beside it: where things are, and which Python has torch.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
shared=${MONOTRON_SHARED:-$(realpath -m ../shared)}
export MONOTRON_SHARED=$shared
python=${PYTHON:-python3}
work=${WORK:-$(mktemp -d)}
mkdir -p "$work"
[ -n "${WORK:-}" ] || trap 'rm -rf "$work"' EXIT

need() { # file: ends the proof where it is not there
  [ -e "$1" ] || { echo "skipped: $1 is not here (set MONOTRON_SHARED)"; exit 0; }
}

peer() { # modules: ends the proof where Python lacks one of them
  for module in "$@"; do
    "$python" -c "import $module" 2>/dev/null || { echo "skipped: $python has no $module (set PYTHON to a virtual environment's)"; exit 0; }
  done
}

# The data path against its peers, as ratios in one run.
set -eu
cd "$(dirname "$0")/../.."
exec make --no-print-directory bench-data

# The data path against its peers, as ratios in one run.
. "$(dirname "$0")/../common.sh"
make --no-print-directory bench-data

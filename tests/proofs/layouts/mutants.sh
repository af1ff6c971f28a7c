# Every collective broken in turn, masks and padded columns too: all must show.
. "$(dirname "$0")/../common.sh"
bin/monotron verify --world-size 8 --mutate

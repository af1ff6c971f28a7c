# The peak of memory of every conversion of 1.5 GB, each in a process of its own,
# against 1.2 times the largest tensor and 200 MB.
. "$(dirname "$0")/../common.sh"
TMPDIR=$work MONOTRON_LARGE=1 "$GO" test -count=1 -timeout 1h -v -run 'TestMemory$' ./tools/convert | grep -v '^=== '

# The fault table: every injection x phase, in processes and in goroutines: the verdict
# names the right rank and cause; seconds until all is over, exit code, nothing left.
. "$(dirname "$0")/../common.sh"
FAULTS=all nice -n 5 go test -v -count=1 -timeout 60m -run "^TestFaultTable$" ./tests | grep -v "^=== RUN"

# Every pipeline of up to 8 stages, 4 chunks and 32 micro-batches: live
# micro-batches, simulated time, unbuffered links.
. "$(dirname "$0")/../common.sh"
go test -count 1 -v ./megatron/schedule | grep -E '^(---|ok|FAIL|    .*_test.go)|pipelines'

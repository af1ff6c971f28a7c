# Every golden case is met as it is; each family goes from every format to every
# other and back, bit for bit, and the matrix is printed; every fault is refused.
. "$(dirname "$0")/../common.sh"
need "$shared/golden/checkpoint"
go test -count=1 -run TestGoldenCases ./tools/verify/checkpointcase
go test -count=1 -v -run TestMatrix ./tools/convert | grep -v '^=== '
python3 "$shared/golden/checkpoint/run_bad.py" --bin bin

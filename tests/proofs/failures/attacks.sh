# A port scan, wrong secrets, garbage and slow-loris against every port of a run of 8
# processes while it trains: its numbers stay those of a run that was left alone.
. "$(dirname "$0")/../common.sh"
ATTACK_ITERS=${ITERS:-400} nice -n 5 go test -v -count=1 -timeout 20m -run '^TestLaunch$/attacked' ./tests | grep -v '^=== RUN'

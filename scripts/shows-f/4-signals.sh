# SIGTERM or SIGUSR1 to one of 8 processes, in the set-up, an evaluation, a save: all end
# at the next step boundary, saved, with 75, and go on to the same numbers.
set -euo pipefail
cd "$(dirname "$0")/../.."
nice -n 5 go test -v -count=1 -timeout 20m -run '^TestLaunch$/signal' . | grep -v '^=== RUN'

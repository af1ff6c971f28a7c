# Tests without cgo, what differs there: the packages that then consist of other files, the
# tests that open devices of C, and the program made of them, by the examples of every command and ranks as processes. The
# others' sources are the same either way; `make nocgo` runs them all. Called by make test, and with
# the word vet by make lint: go vet of these packages alone.
set -eu
cd "$(dirname "$0")/.."
files() { CGO_ENABLED=$1 $GO list -e -f '{{.ImportPath}} {{.GoFiles}} {{.CgoFiles}}' ./...; }
report() { CGO_ENABLED=0 $GO run ./scripts/testreport -vet=off -short -timeout 30m "$@"; }
with=$(mktemp)
trap 'rm -f "$with"' EXIT
files 1 > "$with"
differing=$(files 0 | grep -vxFf "$with" | cut -d' ' -f1)
[ -n "$differing" ] || { echo "no package differs without cgo: the list is broken" >&2; exit 1; }
if [ "${1:-}" = vet ]; then
  CGO_ENABLED=0 $GO vet $differing .
  exit
fi
echo "$(echo "$differing" | wc -l) of $(wc -l < "$with") packages differ without cgo"
report $differing .
# Tests that open a device which is not there must skip or take another. All packages above are done; the names of the
# tests of the others together choose, which takes in a few of their other tests.
done=$(echo "$differing" | sed "s,^monotron,.,")
needing=$(grep -rlE '"monotron/csrc/(cpu|cuda|comm|gpus)"' --include=*_test.go . | xargs grep -LE '^//go:build.*cgo' | while read -r file; do
  echo "$done" | grep -qxF "${file%/*}" || echo "$file"
done)
tests=$(echo "$needing" | xargs sed -nE 's/^func (Test[A-Za-z0-9_]+)\(.*/\1/p' | sort -u | paste -sd'|')
report -run "^($tests)\$" $(echo "$needing" | xargs -n1 dirname | sort -u)
SHARE='' report -run 'TestExamples|TestLaunch/(processes|a_killed_rank|a_mistake)' ./tests

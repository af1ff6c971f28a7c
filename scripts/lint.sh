# gofmt, go vet and staticcheck over the whole module; called by make lint.
set -eu
unformatted=$(git ls-files --cached --others --exclude-standard '*.go' | xargs gofmt -l)
if [ -n "$unformatted" ]; then
  echo "gofmt -w these:"
  echo "$unformatted"
  exit 1
fi
$GO vet ./...
$STATICCHECK ./...
CGO_ENABLED=0 $GO vet ./...

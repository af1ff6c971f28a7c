# Runs every fuzz target of the module for FUZZTIME, one after another.
set -eu
targets=$(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sort) || true
[ -n "$targets" ] || { echo "no fuzz targets"; exit 0; }
echo "$targets" | while IFS=: read -r file func; do
  name=${func#func }
  echo "== $(dirname "$file") $name"
  $GO test -run '^$' -fuzz "^$name\$" -fuzztime "$FUZZTIME" "$(dirname "$file")" </dev/null
done

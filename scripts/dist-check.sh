#!/usr/bin/env bash
# Builds make dist twice, in two clones in different folders, the second with an empty build
# cache, and compares all files byte by byte. Exit 1 when one differs.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
git clone -q . "$work/first"
git clone -q . "$work/second folder"
OUT=$work/1 bash "$work/first/scripts/dist.sh"
TOOLS_GOCACHE=$(${GO:-go} env GOCACHE) GOCACHE=$work/cache OUT=$work/2 bash "$work/second folder/scripts/dist.sh" >/dev/null
equal=0
for file in "$work"/1/*; do
  cmp "$file" "$work/2/${file##*/}"
  equal=$((equal + 1))
done
[ "$equal" -eq "$(find "$work/2" -type f | wc -l)" ] || { echo "FAILED: the second build has other files"; ls "$work/1" "$work/2"; exit 1; }
echo "dist: two builds, $equal files, all equal"

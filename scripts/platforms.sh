#!/bin/sh
# Called by make platforms: the program compiles for every platform that no test runs on.
# Those without a C compiler here are built in plain Go. Exit 1 when one does not compile.
set -u
cd "$(dirname "$0")/.." || exit 1
failed=
for platform in linux/amd64 linux/arm64 darwin/arm64 windows/amd64; do
  if CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/} ${GO:-go} build -o /dev/null .; then
    echo "$platform: compiles"
  else
    echo "$platform: does not compile"
    failed=1
  fi
done
exit ${failed:-0}

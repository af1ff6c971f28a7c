#!/bin/sh
# Prints the version: v and VERSION on that release's tag and in a source tarball; on other
# commits v0.1.0-dev+COMMIT, with -dirty where tracked files differ from it. It never fails:
# without git the commit is left out.
cd "$(dirname "$0")/.." || exit 1
version=v$(cat VERSION)
if [ ! -e .git ]; then
  echo "$version"
elif commit=$(git rev-parse --short=9 HEAD 2>/dev/null); then
  dirty=
  [ -z "$(git status --porcelain --untracked-files=no 2>/dev/null)" ] || dirty=-dirty
  if [ -z "$dirty" ] && git tag --points-at HEAD 2>/dev/null | grep -qxF "$version"; then
    echo "$version"
  else
    echo "$version-dev+$commit$dirty"
  fi
else
  echo "$version-dev"
fi

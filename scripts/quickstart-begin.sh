# Sourced by quickstart.sh and quickstart-tune.sh: what both begin with. It wants their variables name,
# bin and out, and makes the folder out, which an earlier run of the same script may have left.
began=$SECONDS

die() { echo "$name: $*" >&2; exit 1; }
title() { printf '\n== %s\n' "$1"; }
run() { # prints a command as it would be typed, then runs it
  echo "\$ $(printf '%q ' "$@")"
  "$@"
}

[ -x "$bin/monotron" ] || die "$bin/monotron is missing; run make first"
if [ -e "$out" ]; then
  [ -e "$out/.made-by-$name" ] || die "$out exists and $name did not make it; move it away"
  rm -rf "$out"
fi
mkdir -p "$out"
touch "$out/.made-by-$name"

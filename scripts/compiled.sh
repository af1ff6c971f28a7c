# sh scripts/compiled.sh OUT.o SOURCE HEADERS... -- COMPILER FLAGS...: compiles SOURCE, unless the
# same compiler has done so before with the same flags and the same content of all these files;
# then the object is taken from .tools/objects. What the compiler said stays in OUT.txt.
set -eu
out=$1
source=$2
shift
inputs=
while [ "$1" != -- ]; do
  inputs="$inputs $1"
  shift
done
shift
key=$({ "$1" --version; echo "$@" "$inputs"; cat $inputs; } | sha256sum | cut -c1-40)
kept=.tools/objects/$key
mkdir -p .tools/objects "${out%/*}"
if [ -e "$kept.o" ] && [ -e "$kept.txt" ]; then
  touch "$kept.o" "$kept.txt" # what nobody takes for a month is removed
else
  "$@" -o "$kept.$$" "$source" 2> "$kept.$$.txt" || { cat "$kept.$$.txt" >&2; rm -f "$kept.$$" "$kept.$$.txt"; exit 1; }
  mv "$kept.$$.txt" "$kept.txt"
  mv "$kept.$$" "$kept.o"
  find .tools/objects -type f -mtime +30 -delete 2> /dev/null || true # a file of a compiler beside this one may go meanwhile
fi
cp "$kept.txt" "${out%.o}.txt"
cp "$kept.o" "$out"
grep -E 'warning|error' "$kept.txt" >&2 || true

# Writes docs/kernels.md from what ptxas said of each kernel (make cuda keeps it), and
# fails when a kernel spills registers that the committed table does not know of.
# Called by make cuda-kernels; NAMES: c++filt.
set -eu
cd "$(dirname "$0")/.."
table=docs/kernels.md
new=$table.tmp
{
  echo "# Kernels"
  echo
  echo "What \`ptxas\` says of every kernel, by architecture: registers a thread, bytes spilled (stored + loaded), static shared memory a block. Written by \`make cuda-kernels\`, which fails on a spill that this table does not know. Dynamic shared memory is chosen at launch."
  echo
  echo "| kernel | arch | registers | spilled | shared |"
  echo "|---|---|---|---|---|"
  cat .tools/build/cuda/*.txt | c++filt -n 2>/dev/null | awk '
    /Compiling entry function/ { split($0, q, "\047"); name = q[2]; arch = q[4] }
    /bytes spill stores/ { spilled = $5 + $9 }
    /Used [0-9]+ registers/ {
      shared = 0
      for (i = 1; i <= NF; i++) { if ($(i + 1) == "registers,") regs = $i; if ($(i + 1) ~ /^smem/) shared = $i }
      print name "\t" arch "\t" regs "\t" spilled "\t" shared
    }' | while IFS="$(printf '\t')" read -r name arch regs spilled shared; do
    printf '| `%s` | %s | %s | %s | %s |\n' "$(printf '%s' "$name" | c++filt | sed 's/^void //; s/(anonymous namespace):://g; s/(.*//; s/__nv_bfloat16/bf16/g; s/__half/f16/g')" "$arch" "$regs" "$spilled" "$shared"
  done | sort -u
} > "$new"
kernels=$(grep -c '^| `' "$new" || true)
[ "$kernels" -gt 0 ] || { echo "no kernel found: is the library built?"; rm -f "$new"; exit 1; }
spills() { awk -F'|' '/^\| `/ && $5 + 0 > 0 { print $2 $3 $5 }' "$1"; }
worse=
if [ -e "$table" ]; then
  spills "$new" > .tools/build/spills.new
  spills "$table" > .tools/build/spills.old
  worse=$(grep -vxFf .tools/build/spills.old .tools/build/spills.new || true)
fi
mv "$new" "$table"
echo "$kernels kernels (all architectures counted) in $table; $(spills "$table" | wc -l) of them spill"
if [ -n "$worse" ]; then
  echo "new spills (kernel, architecture, bytes):"
  echo "$worse"
  exit 1
fi

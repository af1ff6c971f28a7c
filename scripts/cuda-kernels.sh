# Writes docs/kernels.md from what ptxas said of each kernel (make cuda keeps it), and
# fails when a kernel spills registers, or keeps an array in local memory, where the committed
# table says it does not. Called by make cuda-kernels; by make cuda-check with ARCH, the one architecture that was compiled
# for: then the table is looked at and stays.
set -eu
cd "$(dirname "$0")/.."
table=docs/kernels.md
new=bin/build/kernels.md
objects=bin/build/cuda${ARCH:+-$ARCH}

# name, architecture, registers, bytes spilled, shared memory, bytes of stack; a kernel a line.
said() {
  cat "$objects"/*.txt | awk '
    /Compiling entry function/ { split($0, q, "\047"); name = q[2]; arch = q[4] }
    /bytes spill stores/ { stack = $1; spilled = $5 + $9 }
    /Used [0-9]+ registers/ {
      shared = 0
      for (i = 1; i < NF; i++) { if ($(i + 1) == "registers,") regs = $i; if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/) shared = $i }
      print name, "@" arch, regs, spilled, shared, stack
    }' | c++filt |
    sed 's/^void //; s/(anonymous namespace):://g; s/(bool)1/true/g; s/(bool)0/false/g; s/(int)//g; s/([^@]*@/@/; s/ *@/@/; s/__nv_bfloat16/bf16/g; s/__half/f16/g'
}

{
  echo "# Kernels"
  echo
  echo "This page lists the resources of every CUDA kernel, as \`ptxas\` reports them. \`make cuda-kernels\` writes the page. The command fails if the new table"
  echo "has spilled registers or stack memory in a cell in which the previous table had neither. For each architecture the table has the number of"
  echo "registers per thread. If a kernel spills registers, the number of spilled bytes (stored and loaded) follows in brackets. If a kernel does not spill but"
  echo "uses stack memory (arrays in local memory), the number of bytes of stack follows instead. The last column is the static shared memory per block, in"
  echo "bytes. Dynamic shared memory is chosen when a kernel is launched, so it is not in the table."
  echo
  echo "| kernel | sm_80 | sm_90a | sm_100 | shared |"
  echo "|---|---|---|---|---|"
  said | awk -F@ '
    { split($2, v, " "); cell = v[2]; if (v[3] > 0) cell = cell " (" v[3] " spilled)"; else if (v[5] > 0) cell = cell " (" v[5] " stack)"; at[$1, v[1]] = cell; shared[$1] = v[4] }
    END { for (k in shared) printf "| `%s` | %s | %s | %s | %s |\n", k, at[k, "sm_80"], at[k, "sm_90a"], at[k, "sm_100"], shared[k] }' | sort
} > "$new"
kernels=$(grep -c '^| `' "$new" || true)
[ "$kernels" -gt 0 ] || { echo "no kernel found: is the library built?"; exit 1; }

# kernel and architecture of every spill and stack in a table
spills() { awk -F'|' '/^\| `/ { for (i = 3; i <= 5; i++) if ($i ~ /spilled|stack/) print $2, i - 2 }' "$1" | sort; }
worse=
if [ -e "$table" ]; then
  spills "$table" > bin/build/spills
  worse=$(spills "$new" | comm -23 - bin/build/spills)
fi
[ -n "${ARCH:-}" ] || cp "$new" "$table"
echo "$kernels kernels for ${ARCH:+sm_}${ARCH:-every architecture, in $table}; $(spills "$new" | wc -l) spill or have a stack"
# Warps that an SM's 65,536 registers hold, of 64: shared memory may allow fewer.
echo "kernels with room for less than a quarter of an SM's warps, by their registers:"
said | awk -F@ '{
    split($2, v, " "); w = int(65536 / (int((v[2] + 7) / 8) * 8 * 32)); if (w > 64) w = 64
    if (w < 16) printf "  %s %s: %d registers, %d warps\n", v[1], $1, v[2], w }' | sort
if [ -n "$worse" ]; then
  echo "new spills or stacks (kernel, column of its architecture):"
  echo "$worse"
  exit 1
fi

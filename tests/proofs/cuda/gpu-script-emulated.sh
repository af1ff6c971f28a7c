# What a GPU machine would run (scripts/gpu.sh), from a folder with nothing but the pack and
# without this environment, on emulated kernels and tiny shapes: every part. Then with a kernel's
# fault in the middle: a process that launches many kernels fails, and everything else is still
# there, with the words of what failed. Then where little time is left, and a pack that is too
# large to travel.
. "$(dirname "$0")/../common.sh"
make --no-print-directory emu
LIBRARY=bin/libmt_cudaemu.so sh scripts/cuda-pack.sh
trap 'rm -rf "$work" bin/gpu' EXIT
cp -r bin/gpu "$work/pack"
MOST=1 LIBRARY=bin/libmt_cudaemu.so sh scripts/cuda-pack.sh 2> "$work/refused" && { echo "FAILED: a pack of over 1 MiB was not refused"; exit 1; }
grep 'over 1 MiB and may not travel' "$work/refused"
cd /
run() { env -i PATH=/usr/bin:/bin HOME="$work" EMU=libmt_cudaemu.so "$@"; }
parts="machine smallest nccl resume cases cudnn golden graphs graphs-of-ops ladder step sides torch layouts ops ops-cudnn sanitizer"
all() { # FOLDER: every part has its line, in the order; the folder may come back from another machine
  [ "$(cut -d: -f1 "$1/summary.txt" | tr '\n' ' ')" = "$parts " ] || { cat "$1/summary.txt"; echo "FAILED: parts are missing"; exit 1; }
  [ "$(ls "$1" | wc -l)" -le 8 ] || { ls "$1"; echo "FAILED: more files than come back"; exit 1; }
}
echo "== every part"
run OUT="$work/out" sh "$work/pack/gpu.sh" all || { cat "$work/out/log.txt" "$work/out/failed.txt"; exit 1; }
all "$work/out"
[ ! -e "$work/out/failed.txt" ]
cat "$work/out/ladder.txt"
grep 'a step of' "$work/out/step.txt"
echo "== the 250th kernel of each process faults"
if run MONOTRON_EMU_FAULT=250 sh "$work/pack/gpu.sh" all "$work/fault"; then echo "FAILED: a fault that nobody saw"; exit 1; fi
all "$work/fault"
for part in machine smallest; do grep "^$part: ok" "$work/fault/summary.txt" || { echo "FAILED: $part, which launches few kernels"; exit 1; }; done
for part in resume cases; do grep "^$part: FAILED" "$work/fault/summary.txt" || { echo "FAILED: $part did not see the fault"; exit 1; }; done
grep -m 1 'illegal memory access' "$work/fault/failed.txt"
grep -E 'ops, FAILED' "$work/fault/cases.txt"
grep -E '^(fill|add|rope): ' "$work/fault/cases.txt"
echo "== a checker, which is none: its three tools, one of which finds something"
cat > "$work/checker" <<'END'
#!/bin/sh
tool=$2
shift 4
"$@"
echo "========= ERROR SUMMARY: $([ "$tool" = racecheck ] && echo 1 || echo 0) errors"
[ "$tool" != racecheck ]
END
chmod +x "$work/checker"
if run SANITIZER="$work/checker" sh "$work/pack/gpu.sh" sanitizer "$work/checked"; then echo "FAILED: a race that nobody saw"; exit 1; fi
grep -E '^(memcheck|racecheck|synccheck): ' "$work/checked/log.txt"
[ "$(grep -cE '^(memcheck|racecheck|synccheck): [1-9][0-9]* ops, ERROR SUMMARY' "$work/checked/log.txt")" = 3 ]
grep '^racecheck: FAILED (1)' "$work/checked/log.txt"
echo "== little time"
if run LIMIT=20 sh "$work/pack/gpu.sh" test "$work/short"; then echo "FAILED: all parts in 20 s"; exit 1; fi
grep 'NOT RUN, the time is up' "$work/short/summary.txt" | tail -1

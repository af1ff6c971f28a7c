# RANKS ranks at once on this host, 8 to a simulated host, by the protocol of ranks: rank 0 is a process of its own, with its
# watcher. Prints the seconds until all have met, then for each of FAULTS the seconds to the verdict and its text, with the
# processor time, the memory and the open files of rank 0. One rank is killed, stopped, cut off, does not enter a collective that
# all others wait in, or calls another one than its group; relay: it is one that connects others. The verdict must name the rank and
# what it was in, reach all ranks, and keep the limits: 30 s to meet, 30 s to the verdict, 3 s of a processor from the meeting to the
# verdict (with 16,384 ranks; in proportion with fewer) and 1 GiB for rank 0. Needs an open file for each host (ulimit -n).
. "$(dirname "$0")/../common.sh"
"$GO" test -c -o "$work/load.test" ./mpu/health
for ranks in ${RANKS:-1024 4096 10000 16384}; do
  # A skipped fault is told, and counts as no failure: namespaces and open files are the host's to give.
  MONOTRON_LOAD_RANKS=$ranks MONOTRON_LOAD_FAULTS="${FAULTS:-closed silent half-open stalled mismatch relay-closed relay-silent}" MONOTRON_LOAD_LIMITS=1 \
    "$work/load.test" -test.run '^TestLoad$' -test.v -test.timeout 0 >"$work/log" 2>&1 || { tail -20 "$work/log"; echo "FAILED: $ranks ranks"; exit 1; }
  grep -E 'load_test.go|SKIP' "$work/log"
done

#!/bin/bash
# Claims: SIGTERM under load lets what has begun end whole, refuses the rest and ends with 0, with one rank, with two here and with two
# processes. kill -9 of a rank's process at COUNT (10) random moments ends the server within seconds with a verdict that names it, what was
# answered before was right, and every open stream is told.
source "$(dirname "$0")/../common.sh"
source "$(dirname "$0")/server.bash"
RANDOM=${SEED:-1}
two="--tensor-model-parallel-size 2"
# clients WHAT WHEN HOW PID..
clients() {
  echo -n "$1: "
  "$python" "$(dirname "$0")/kills.py" "$url" 8 "${@:2}" || { kill "$server"; echo "FAILED: a client"; exit 1; }
}
ended() { # CODE: the server's
  local code=0
  wait "$server" || code=$?
  [ "$code" = "$1" ] || { tail -3 "$work/notes"; echo "FAILED: the server ended with $code"; exit 1; }
}
# process RANK: its number, of the launcher's children
process() {
  for pid in $(pgrep -P "$server"); do
    { tr '\0' '\n' <"/proc/$pid/environ"; } 2>/dev/null | grep -qx "RANK=$1" && echo "$pid"
  done
  true
}
for way in "bin/monotron serve" "bin/monotron serve $two" "bin/monotron launch --nproc-per-node 2 -- serve $two"; do
  serve_by $way
  clients "SIGTERM, $way" 1 SIGTERM "$server"
  ended 0
done
for ((i = 1; i <= ${COUNT:-10}; i++)); do
  serve_by bin/monotron launch --nproc-per-node 2 -- serve $two
  rank=$((RANDOM % 2))
  clients "kill -9 of rank $rank" "0.$((RANDOM % 900 + 100))" SIGKILL "$(process $rank)"
  ended 137
  grep "rank $rank (process" "$work/notes" | tail -1
done

# Sourced by the proofs of serve: start and end a server, and look whether blocks are in use.

# A proof that fails leaves no server behind.
made=$(trap -p EXIT)
trap 'kill "${server:-}" 2>/dev/null || true; [ -z "$made" ] || rm -rf "$work"' EXIT

# serve FLAGS..: starts one on golden/serve/model; its address is in $url, its process in $server
serve() { serve_by bin/monotron serve "$@"; }

# serve_by COMMAND..: the same by a command line; $server is the launcher's where that starts one
serve_by() {
  need "$shared/golden/serve/model"
  serve_model "$shared/golden/serve/model" "$@"
}

# serve_model MODEL COMMAND..: the same with another model
serve_model() {
  model=$1
  shift
  rm -f "$work/notes"
  "$@" --load "$model" --port 0 2>"$work/notes" &
  server=$!
  until grep -sqE '^(\[0\] )?ready' "$work/notes"; do kill -0 "$server" || { cat "$work/notes"; exit 1; }; sleep 0.1; done
  url=$(sed -n 's/.*\(http:[^ ]*\)\/,.*/\1/p' "$work/notes")
}

# metric NAME: its value
metric() { "$python" -c 'import sys, urllib.request
print([l.split()[1] for l in urllib.request.urlopen(sys.argv[1] + "/metrics").read().decode().splitlines() if l.startswith("monotron:" + sys.argv[2] + "{")][0])' "$url" "$1"; }

# nothing_left: no request runs and no block is in use, and the server ends with 0 when it is told to
nothing_left() {
  for _ in $(seq 100); do [ "$(metric num_requests_running)" = 0 ] && break; sleep 0.1; done
  echo "running $(metric num_requests_running), blocks in use $(metric kv_cache_usage_perc), preemptions $(metric num_preemptions_total)"
  [ "$(metric num_requests_running)" = 0 ] && [ "$(metric kv_cache_usage_perc)" = 0 ] || { echo "FAILED: something is left"; exit 1; }
  kill -TERM "$server"
  wait "$server" || { echo "FAILED: the server ended with $?"; exit 1; }
}

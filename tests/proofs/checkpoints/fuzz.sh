# EXECS (1,000,000) executions of every fuzz target of what reads checkpoints,
# without a crash. An input of interest is kept as it is: Go would else spend its
# time on making it smaller. PARALLEL (1) processes at a time.
. "$(dirname "$0")/../common.sh"
execs=${EXECS:-1000000}
fuzz() { # package target
  nice -n 19 go test -run '^$' -fuzz "^$2\$" -fuzztime "${execs}x" -fuzzminimizetime 1x -parallel "${PARALLEL:-1}" "./$1" >"$work/$2" 2>&1 || {
    tail -40 "$work/$2"
    echo "FAIL $2"
    exit 1
  }
  ran=$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' "$work/$2" | tail -1)
  echo "ok   $2: $ran executions, no crash"
}
fuzz internal/pickle FuzzPickle
fuzz internal/pickle FuzzTorchFile
fuzz internal/safetensors FuzzSafetensorsHeader
fuzz megatron/checkpoint/megatron/torchdist FuzzMetadata
fuzz megatron/checkpoint/hf FuzzConfig
fuzz megatron/checkpoint/native FuzzManifest
# Nothing that a pickle names is run; the folders of golden/checkpoint/bad are
# judged beside the matrix, with the marker files they would leave.
go test -count=1 -run 'TestNothingRuns|TestCorpus' ./internal/pickle

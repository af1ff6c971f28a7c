# Prints the folders of the golden cases that a device computes, where they are at hand: not
# those of schedules and samplers, nor of whole runs, nor of models that the program cannot
# read yet (internal/golden/later.go), nor the one whose limit f32 misses (docs/experts.md).
# Called in the repository's root.
later=" $(sed -nE 's/^\t"([^"]+)": .*/\1/p' internal/golden/later.go | tr '\n' ' ') "
for case in "${MONOTRON_SHARED:-../shared}"/golden/model/*/case.json; do
  case $case in *\**|*mixtral*|*/moe-bias-aux/*|*/pretrain-*|*/schedules/*|*/pipeline-orders/*|*/batch-size/*) continue ;; esac
  case=$(dirname "$case")
  case $later in *" ${case##*/} "*) continue ;; esac
  echo "$case"
done

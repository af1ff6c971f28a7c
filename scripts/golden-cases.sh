# Prints the folders of the golden cases that a device computes, where they are at hand: not
# those of schedules and samplers, nor of whole runs, nor the one whose limit f32 misses
# (docs/experts.md).
# Called in the repository's root.
for case in "${MONOTRON_SHARED:-../shared}"/golden/model/*/case.json; do
  case $case in *\**|*mixtral*|*/moe-bias-aux/*|*/pretrain-*|*/schedules/*|*/pipeline-orders/*|*/batch-size/*) continue ;; esac
  dirname "$case"
done

# Prints the folders of the golden cases that a device computes, where they are at hand: not
# those of schedules and samplers, of whole runs, nor of mixtures of experts.
for case in "${MONOTRON_SHARED:-../shared}"/golden/model/*/case.json; do
  case $case in *\**|*mixtral*|*/pretrain-*|*/schedules/*|*/pipeline-orders/*|*/batch-size/*) continue ;; esac
  dirname "$case"
done

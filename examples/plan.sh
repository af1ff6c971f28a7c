# What each stage of a pipeline does when, before a run is launched: 24 layers on
# 4 stages of 2 chunks, with an output layer that is as much work as 1.5 layers.
monotron plan schedule --num-layers 24 --num-virtual-stages-per-pipeline-rank 2 --micro-batches 8 --head-work 1.5 --svg schedule.svg
monotron plan schedule --num-layers 24 --num-virtual-stages-per-pipeline-rank 2 --micro-batches 8 --head-work 1.5 --json >schedule.json
test -s schedule.svg && test -s schedule.json

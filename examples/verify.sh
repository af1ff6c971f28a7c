# Sequence parallelism over 2 ranks does not change the maths of a small Llama, and a fault would show;
# then another program's numbers for a small GPT-2, held against ours on both devices.
# REPO is the repository's folder.
monotron verify --world-size 2 --shape llama --steps 1 --only "tp2 sp" --png table.png
test -s table.png
monotron verify --world-size 2 --shape llama --steps 1 --mutate --only "dp2 optim"
case=${REPO:-.}/tools/verify/modelcase/testdata/gpt2-tanh
monotron verify case "$case" --device ref
monotron verify case "$case" --device auto

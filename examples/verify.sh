# No layout of 2 ranks changes the maths of a small Llama, and a fault would show;
# then another program's numbers for a small GPT-2, held against ours on both devices.
# REPO is the repository's folder.
monotron verify --world-size 2 --shape llama --steps 1
monotron verify --world-size 2 --shape gpt2 --steps 1 --mutate --only dp2
case=${REPO:-.}/tools/verify/modelcase/testdata/gpt2-tanh
monotron verify case "$case" --device ref
monotron verify case "$case" --device auto

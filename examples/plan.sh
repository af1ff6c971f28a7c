# What each stage of a pipeline does when, before a run is launched: 24 layers on
# 4 stages of 2 chunks, with an output layer that is as much work as 1.5 layers.
monotron plan schedule --num-layers 24 --num-virtual-stages-per-pipeline-rank 2 --micro-batches 8 --head-work 1.5 --svg schedule.svg
monotron plan schedule --num-layers 24 --num-virtual-stages-per-pipeline-rank 2 --micro-batches 8 --head-work 1.5 --json >schedule.json
test -s schedule.svg && test -s schedule.json
# What every rank of a training run will hold in memory: GPT-3 on 64 GPUs that are not here.
gpt3="--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 64
  --train-iters 1000 --lr 1e-4 --bf16 --tokenizer-type NullTokenizer --vocab-size 51199 --mock-data --device cuda"
monotron plan run pretrain_gpt $gpt3 --world-size 64 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --sequence-parallel
monotron plan run --json pretrain_gpt $gpt3 --world-size 64 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 >run.json
test -s run.json
# The same with the seconds of a step on H100s, and what the training costs; the rules of thumb beside it.
monotron plan run pretrain_gpt $gpt3 --world-size 64 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --sequence-parallel --machine h100 --price 2.5
monotron plan formulas pretrain_gpt $gpt3 --world-size 64 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --sequence-parallel
printf 'layers,hidden,heads,seq_length,max_position_embeddings,vocab_size,tp,pp,dp,micro_batch,global_batch,bf16\n96,12288,96,2048,2048,51199,8,8,1,1,64,true\n96,12288,96,2048,2048,51199,8,4,2,1,64,true\n' >layouts.csv
monotron plan table layouts.csv --machine h100
# The fastest layouts of a model of 7 billion parameters on 16 H100s.
monotron plan search --gpus 16 --machine h100 --best 3 --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 \
  --global-batch-size 256 --train-iters 1000 --lr 1e-4 --bf16 --tokenizer-type NullTokenizer --vocab-size 51199 --mock-data

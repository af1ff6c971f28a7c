# Training what does not fit (docs/offload.md). GPT-2 1.5B with AdamW in f32, 3 steps on the CPU in a control group of 10 GiB with
# parameters and moments in files: without files it is refused there, and with them it ends. A model of the same width and LAYERS (2)
# layers is trained both ways, and all tensors are equal to the bit; on the emulated GPU, where `make emu` has built it, a smaller one.
# DISK is the folder for the files (19 GB); SMALL=1 leaves out the large model. Needs root and a writable /sys/fs/cgroup, and
# minutes a step.
. "$(dirname "$0")/../common.sh"
disk=${DISK:-$work/disk}
if [ -d /sys/fs/cgroup/memory ]; then groups=/sys/fs/cgroup/memory most=memory.limit_in_bytes peak=memory.max_usage_in_bytes; else groups=/sys/fs/cgroup most=memory.max peak=memory.peak; fi
wide="--device cpu --hidden-size 1600 --num-attention-heads 25 --seq-length ${SEQ:-1024} --max-position-embeddings 1024 --micro-batch-size 1
  --global-batch-size 1 --mock-data --tokenizer-type NullTokenizer --vocab-size 50257 --train-iters 3 --lr 1e-4 --clip-grad 1 --eval-iters 0
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 --log-interval 1 --timing-log-level 1"
away="--offload-folder $disk --zero-stage 3"

equal() { # A B: all tensors of two save folders
  bin/monotron diff "$work/$1" "$work/$2" >"$work/diff" || { tail -5 "$work/diff"; echo "FAILED: $2"; exit 1; }
  echo "$2: $(tail -1 "$work/diff"), beside $1"
}
run() { # NAME FLAGS..
  local name=$1
  shift
  bin/pretrain_gpt "$@" --save "$work/$name" --no-save-tokenizer-assets >"$work/$name.log" 2>&1 || { tail -5 "$work/$name.log"; echo "FAILED: $name"; exit 1; }
}

run memory $wide --num-layers "${LAYERS:-2}" --seq-length 128
run files $wide --num-layers "${LAYERS:-2}" --seq-length 128 $away
equal memory files
[ -z "$(ls "$disk")" ] || { echo "FAILED: $(ls "$disk") is left"; exit 1; }
rm -rf "$work/memory" "$work/files"

if [ -e "${MONOTRON_CUDA_LIBRARY:-bin/libmt_cudaemu.so}" ]; then
  export MONOTRON_CUDA_LIBRARY=${MONOTRON_CUDA_LIBRARY:-$PWD/bin/libmt_cudaemu.so}
  tiny="--device cuda --num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --max-position-embeddings 32 --micro-batch-size 2
    --global-batch-size 4 --mock-data --tokenizer-type NullTokenizer --vocab-size 200 --train-iters 3 --lr 1e-3 --clip-grad 0.5 --eval-iters 0 --bf16"
  run gpu $tiny
  run gpu-host $tiny --optimizer-cpu-offload
  run gpu-files $tiny --offload-folder "$disk"
  run gpu-zero3 $tiny $away
  for name in host files zero3; do equal gpu gpu-$name; done
  unset MONOTRON_CUDA_LIBRARY
else
  echo "the emulated GPU is not built (make emu): left out"
fi

[ -z "${SMALL:-}" ] || exit 0
group=$groups/monotron$$
mkdir "$group" 2>/dev/null && echo $((10 << 30)) >"$group/$most" || { echo "skipped: no control group can be made under $groups"; exit 0; }
limited() { (echo $BASHPID >"$group/cgroup.procs" && exec "$@"); }
if limited bin/pretrain_gpt $wide --num-layers 48 >"$work/refused.log" 2>&1; then echo "FAILED: 1.5B fits 10 GiB"; exit 1; fi
grep -o '.*offload-folder.*' "$work/refused.log" | tail -1
limited bin/pretrain_gpt $wide --num-layers 48 $away --log-jsonl "$work/large.jsonl" >"$work/large.log" 2>&1 || { tail -5 "$work/large.log"; echo "FAILED: 1.5B with files"; exit 1; }
grep 'number of parameters' "$work/large.log" | tail -1
sed -E 's/.*"iteration":([0-9]+),.*"lm loss":([^,}]+).*"seconds":([^,]+).*"optimizer":([^,}]+).*"memory_bytes":([0-9]+).*"planned_memory_bytes":([0-9]+).*/step \1: loss \2, \3 s, of which the update \4 s; \5 bytes of tensors at most, \6 planned/' "$work/large.jsonl"
echo "the control group's peak: $(cat "$group/$peak") of $((10 << 30)) bytes"
rmdir "$group"

# Training what does not fit (docs/offload.md). A model of the width of GPT-2 1.5B and LAYERS (2) layers is trained with its state in memory,
# in files, and in files with tiled weights, and all tensors are equal to the bit; on the emulated GPU, where `make emu` has built it, a
# smaller one. A disk without room, one that fills up in a step, and a kill during a step leave the checkpoint to go on from. LARGE=1 besides, in control groups (root,
# and a writable /sys/fs/cgroup): a layer larger than its group's memory, tiled; GPT-2 1.5B with AdamW in f32, 3 steps in 10 GiB with parameters
# and moments in files, minutes a step. DISK is the folder for the files (4 GB, with LARGE=1 19 GB).
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

planned() { # NAME FLAGS..: every rank of that run held what the plan of these flags says
  local name=$1 plan held
  shift
  plan=$(bin/monotron plan run --json pretrain_gpt "$@" | grep -o '"peak_bytes":[0-9]*' | sed 's/.*://' | paste -sd,)
  held=$(sed -nE 's/.*"rank_memory_bytes":\[([^]]*)\].*/\1/p' "$work/$name.jsonl" | tail -1)
  [ "$plan" = "$held" ] || { echo "FAILED: $name: planned $plan, held $held"; exit 1; }
  echo "$name: $plan bytes, as planned"
}

# grouped BYTES: a control group of so much memory, for limited CMD..
group=$groups/monotron$$
grouped() {
  mkdir -p "$group" 2>/dev/null && echo "$1" >"$group/$most" || { echo "skipped: no control group can be made under $groups"; return 1; }
  trap 'rm -rf "$work"; rmdir "$group"' EXIT
}
limited() { (echo $BASHPID >"$group/cgroup.procs" && exec "$@"); }

told() { # JSONL: of each step
  sed -E 's/.*"iteration":([0-9]+),.*"lm loss":([^,}]+).*"seconds":([^,]+).*"optimizer":([^,}]+).*"memory_bytes":([0-9]+).*"planned_memory_bytes":([0-9]+).*/step \1: loss \2, \3 s, of which the update \4 s; \5 bytes of tensors at most, \6 planned/' "$1"
}

export MONOTRON_ONEDNN=off # our own products: parts of them are the whole's bits
run memory $wide --num-layers "${LAYERS:-2}" --seq-length 128
run files $wide --num-layers "${LAYERS:-2}" --seq-length 128 $away
equal memory files
run tiled $wide --num-layers "${LAYERS:-2}" --seq-length 128 $away --memory-centric-tiling 4
equal memory tiled
[ -z "$(ls "$disk")" ] || { echo "FAILED: $(ls "$disk") is left"; exit 1; }
rm -rf "$work/memory" "$work/files" "$work/tiled"

if [ -e "${MONOTRON_CUDA_LIBRARY:-bin/libmt_cudaemu.so}" ]; then
  export MONOTRON_CUDA_LIBRARY=${MONOTRON_CUDA_LIBRARY:-$PWD/bin/libmt_cudaemu.so}
  tiny="--device cuda --num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --max-position-embeddings 32 --micro-batch-size 2
    --global-batch-size 4 --mock-data --tokenizer-type NullTokenizer --vocab-size 200 --train-iters 3 --lr 1e-3 --clip-grad 0.5 --eval-iters 0 --bf16"
  run gpu $tiny
  run gpu-host $tiny --optimizer-cpu-offload
  run gpu-files $tiny --offload-folder "$disk"
  run gpu-zero3 $tiny $away
  run gpu-tiled $tiny $away --memory-centric-tiling 2
  for name in host files zero3 tiled; do equal gpu gpu-$name; done
  # A part of the state beside the GPU: the bits of none, the memory of the plan, and any part goes on from any other's checkpoint.
  for ranks in "1" "2 --zero-stage 1" "4 --zero-stage 3 --tensor-model-parallel-size 2" "2 --zero-stage 1 --num-experts 2 --expert-model-parallel-size 2"; do
    set -- $ranks
    rm -rf "$work"/part-*
    run part-none $tiny --world-size "$@"
    for f in 0 0.3 0.5 1; do
      run part-$f $tiny --world-size "$@" --optimizer-cpu-offload --optimizer-offload-fraction $f --log-jsonl "$work/part-$f.jsonl"
      equal part-none part-$f
      planned part-$f $tiny --world-size "$@" --optimizer-cpu-offload --optimizer-offload-fraction $f
    done
    mkdir "$work/part-chain"
    run part-chain $tiny --world-size "$@" --exit-interval 1 --optimizer-cpu-offload --optimizer-offload-fraction 0.3
    run part-chain $tiny --world-size "$@" --exit-interval 2 --optimizer-cpu-offload --optimizer-offload-fraction 0.7 --load "$work/part-chain"
    run part-chain $tiny --world-size "$@" --load "$work/part-chain"
    equal part-none part-chain
  done
  if grouped $((200 << 20)); then # 300 MiB of state beside the GPU, and 200 for all
    code=0
    limited bin/pretrain_gpt $tiny --hidden-size 512 --num-layers 8 --optimizer-cpu-offload >"$work/host.log" 2>&1 || code=$?
    [ $code = 70 ] || { tail -3 "$work/host.log"; echo "FAILED: exit code $code where the host has no room"; exit 1; }
    tail -1 "$work/host.log"
  fi
  unset MONOTRON_CUDA_LIBRARY
else
  echo "the emulated GPU is not built (make emu): left out"
fi

# A kill -9 in a step, and a disk that is full at the start: each leaves the checkpoint, and the run goes on from it as if nothing had been.
small="--device cpu --num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128 --micro-batch-size 1
  --global-batch-size 8 --mock-data --tokenizer-type NullTokenizer --vocab-size 1000 --train-iters 8 --lr 1e-3 --eval-iters 0 --save-interval 4
  --log-interval 1 --zero-stage 3 --memory-centric-tiling 2 --no-save-tokenizer-assets"
run unbroken $small --offload-folder "$disk"
bin/pretrain_gpt $small --offload-folder "$disk" --save "$work/broken" >"$work/broken.log" 2>&1 &
victim=$!
until grep -qs 'iteration *5/' "$work/broken.log" || ! kill -0 $victim 2>/dev/null; do sleep 0.02; done
kill -9 $victim
if wait $victim 2>/dev/null; then echo "FAILED: the run ended before it was killed"; exit 1; fi
compgen -G "$disk/*grad*" >/dev/null || { echo "FAILED: the kill left nothing in $disk"; exit 1; }
mkdir "$work/full"
if mount -t tmpfs -o size=8m none "$work/full" 2>/dev/null; then
  code=0
  bin/pretrain_gpt $small --offload-folder "$work/full" --save "$work/broken" --load "$work/broken" >"$work/full.log" 2>&1 || code=$?
  umount "$work/full"
  [ $code = 74 ] || { tail -3 "$work/full.log"; echo "FAILED: exit code $code on a full disk"; exit 1; }
  tail -1 "$work/full.log"
else
  echo "no tmpfs can be mounted: the full disk is left out"
fi
# ext2 gives a file its blocks as they are written: the moments that are loaded fit, the gradients of the next step do not.
if truncate -s 50M "$work/ext2" && mkfs.ext2 -q "$work/ext2" && mount -o loop "$work/ext2" "$work/full" 2>/dev/null; then
  code=0
  bin/pretrain_gpt $small --offload-folder "$work/full/run" --save "$work/broken" --load "$work/broken" >"$work/full.log" 2>&1 || code=$?
  left=$(ls -A "$work/full/run")
  umount "$work/full"
  [ $code = 74 ] && grep -q 'rank_00000.grad: no space left on device' "$work/full.log" || { tail -3 "$work/full.log"; echo "FAILED: exit code $code on a disk that fills up in a step"; exit 1; }
  [ -z "$left" ] || { echo "FAILED: $left is left on the full disk"; exit 1; }
  if grep -q 'iteration *5/' "$work/full.log"; then echo "FAILED: the step was over"; exit 1; fi
  tail -1 "$work/full.log"
else
  echo "no ext2 can be mounted: the disk that fills up in a step is left out"
fi
run broken $small --offload-folder "$disk" --load "$work/broken"
equal unbroken broken
[ -z "$(ls "$disk")" ] || { echo "FAILED: $(ls "$disk") is left"; exit 1; }

[ -n "${LARGE:-}" ] || exit 0
grouped $((10 << 30)) || exit 0

# A layer of 1.1 GiB, whose first weight alone is larger than the group's memory.
layer="--device cpu --num-layers 1 --hidden-size 4096 --ffn-hidden-size 28672 --num-attention-heads 32 --seq-length 64 --max-position-embeddings 64
  --micro-batch-size 1 --global-batch-size 2 --mock-data --tokenizer-type NullTokenizer --vocab-size 1000 --train-iters 3 --lr 1e-4 --clip-grad 1
  --eval-iters 0 --log-interval 1"
run whole $layer
echo $((430 << 20)) >"$group/$most"
if limited bin/pretrain_gpt $layer $away >"$work/refused.log" 2>&1; then echo "FAILED: the layer fits $((430 << 20)) bytes"; exit 1; fi
tail -1 "$work/refused.log"
limited bin/pretrain_gpt $layer $away --memory-centric-tiling 8 --save "$work/tiles" --no-save-tokenizer-assets --log-jsonl "$work/tiles.jsonl" >"$work/tiles.log" 2>&1 ||
  { tail -5 "$work/tiles.log"; echo "FAILED: tiles of a layer"; exit 1; }
told "$work/tiles.jsonl"
equal whole tiles
rm -rf "$work/whole" "$work/tiles"

unset MONOTRON_ONEDNN # from here on nothing is compared to the bit
echo $((10 << 30)) >"$group/$most"
if limited bin/pretrain_gpt $wide --num-layers 48 >"$work/refused.log" 2>&1; then echo "FAILED: 1.5B fits 10 GiB"; exit 1; fi
grep -o '.*offload-folder.*' "$work/refused.log" | tail -1
limited bin/pretrain_gpt $wide --num-layers 48 $away --log-jsonl "$work/large.jsonl" >"$work/large.log" 2>&1 || { tail -5 "$work/large.log"; echo "FAILED: 1.5B with files"; exit 1; }
grep 'number of parameters' "$work/large.log" | tail -1
told "$work/large.jsonl"
echo "the control group's peak: $(cat "$group/$peak") of $((10 << 30)) bytes"

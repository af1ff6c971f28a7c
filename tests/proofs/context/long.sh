# Sequences of 65,536 positions on 4 ranks, each in a control group whose memory one rank's
# activations do not fit; the losses are those of one rank without a limit. SEQ and LIMIT_MB
# change the size. Needs root and a writable /sys/fs/cgroup. Limited runs have --no-plan: it
# is the kernel's limit that is tried, and the plan holds all ranks of a host against one group.
. "$(dirname "$0")/../common.sh"
SEQ=${SEQ:-65536} LIMIT_MB=${LIMIT_MB:-800}
if [ -d /sys/fs/cgroup/memory ]; then groups=/sys/fs/cgroup/memory most=memory.limit_in_bytes; else groups=/sys/fs/cgroup most=memory.max; fi
mkdir "$groups/monotron$$" 2>/dev/null || { echo "skipped: no control group can be made under $groups"; exit 0; }
rmdir "$groups/monotron$$"

# limited COMMAND..: in a control group of its own
cat >"$work/limited" <<EOF
group=$groups/monotron$$.\$\$
mkdir "\$group" && echo $((LIMIT_MB << 20)) >"\$group/$most" && echo \$\$ >"\$group/cgroup.procs" || exit 74
"\$@" &
wait \$!; status=\$?
echo \$\$ >$groups/cgroup.procs; rmdir "\$group" 2>/dev/null
exit \$status
EOF
model="--num-layers 2 --hidden-size 64 --ffn-hidden-size 1024 --num-attention-heads 2 --seq-length $SEQ --max-position-embeddings $SEQ
  --position-embedding-type rope --micro-batch-size 1 --global-batch-size 1 --train-iters 2 --lr 1e-3 --mock-data --tokenizer-type NullTokenizer
  --vocab-size 1000 --eval-iters 0 --log-interval 1 --log-memory --attention-dropout 0 --hidden-dropout 0 --timing-log-level 2"
bin/pretrain_gpt $model --log-jsonl "$work/one.jsonl" >"$work/one.log" 2>&1 || { tail -5 "$work/one.log"; echo "FAILED: one rank without a limit"; exit 1; }
if sh "$work/limited" bin/pretrain_gpt $model --no-plan --log-jsonl "$work/small.jsonl" >"$work/small.log" 2>&1; then
  echo "FAILED: one rank fits $LIMIT_MB MB"; exit 1
fi
[ ! -s "$work/small.jsonl" ] || { echo "FAILED: one rank made a step in $LIMIT_MB MB"; exit 1; }
bin/monotron launch --nproc-per-node 4 -- "$(command -v sh)" "$work/limited" bin/pretrain_gpt $model --no-plan --context-parallel-size 4 --log-jsonl "$work/four.jsonl" >"$work/four.log" 2>&1 ||
  { tail -5 "$work/four.log"; echo "FAILED: 4 ranks of $LIMIT_MB MB each"; exit 1; }
read -r n worst <<<"$(apart four one)"
echo "$SEQ positions: one rank does not fit $LIMIT_MB MB, 4 ranks of $LIMIT_MB MB do; $n losses, worst difference from one rank without a limit $worst"
activations() { awk '$1 == 0 && /\(tp 0/ { print $(NF - 3) }' "$work/$1.log" | tail -1; }
echo "activations of a rank: $(activations one) MiB alone, $(activations four) MiB of four"
[ "$n" = 2 ] && awk -v w="$worst" 'BEGIN { exit !(w <= 1e-5) }' || { echo FAILED; exit 1; }

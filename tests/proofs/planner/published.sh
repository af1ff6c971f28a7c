# What others have published of Megatron's steps on A100s and of Llama 3's on H100s, beside what a plan says with the machine
# files that come with the program: one efficiency curve a machine. Of each of the two programs (2021, 2022) that ran on A100s every
# second row has three constants fitted to it, and the others judge them. Numbers that a table leaves out (micro-batch, chunks of a
# stage) are the plan's fastest that fit. Tables for docs/plan.md. Nothing is run.
source "$(dirname "$0")/../common.sh"
cd "$work" || exit
monotron=$OLDPWD/bin/monotron

# judge TITLE MACHINE [any]: any: also what does not fit; rows "name,published,unit,seconds-of-1,candidate..." come as a csv with columns name, published, scale
# beside those of plan table; predicted = scale / seconds (scale 0: the seconds themselves)
judge() {
  "$monotron" plan table rows.csv --machine "$2" >said.csv 2>notes || { cat notes; exit 1; }
  echo "$1"
  awk -F, -v title="$1" -v any="${3:-}" '
    NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    { name = $at["name"]; t = $at["predicted_seconds"]; if (t == "") { why[name] = $NF; next }
      if (!(name in best)) { order[++n] = name } else if (!better(name, $NF, t)) next
      best[name] = t; fits[name] = $NF; was[name] = $at["published"]; scale[name] = $at["scale"]; micro[name] = $at["micro_batch"]; vp[name] = $at["vp"] }
    function better(name, f, t) { if (any == "" && f != fits[name]) return f == "true"; return t < best[name] }
    END { for (i = 1; i <= n; i++) { name = order[i]; said = (scale[name] > 0) ? scale[name] / best[name] : best[name]; off = said / was[name] - 1
        chunks = (vp[name] > 1) ? ", " vp[name] " chunks" : ""; room = (fits[name] == "true") ? "" : ", fits not"
        printf("| %s | %s | %.4g | %+.1f %% | micro-batch %s%s%s |\n", name, was[name], said, 100 * off, micro[name], chunks, room)
        if (off < 0) off = -off; sum += off; if (off > worst) worst = off }
      for (name in why) if (!(name in best)) print "no layout for " name ": " why[name]
      printf("%s: %d rows, mean error %.1f %%, worst %.1f %%\n\n", title, n, 100 * sum / n, 100 * worst) }' said.csv
}

# the programs of 2021 and 2022 kept attention's scores; a stage waited for its sends, of which each tensor-parallel rank had a part
sed -E 's/^attention: .*/attention: {share: 0.5, keeps_scores: true}/; s/^name: .*/name: megatron/; $a sends: {sliced: true, blocking: true}' "$OLDPWD/megatron/plan/machines/a100.yaml" >megatron.yaml
gpt=seq_length,max_position_embeddings,vocab_size,bf16
values=2048,2048,51200,true
full="recompute_granularity,recompute_method,recompute_num_layers"
# TFLOP/s a GPU by F = 96 B s l h^2 (1 + s/6h + V/16lh), times seconds
scale='function scale(h, l, b, n) { return 96 * b * 2048 * l * h * h * (1 + 2048 / 6 / h + 51200 / 16 / l / h) / n / 1e12 }'

echo "name,published,scale,heads,hidden,layers,tp,pp,dp,vp,global_batch,micro_batch,sequence_parallel,regime,$gpt,$full" >rows.csv
# Narayanan et al. 2021, table 1
while IFS=, read -r size heads hidden layers tp pp gpus batch tflops; do
  for micro in 1 2 4 8 16; do for vp in 1 2 3; do
    { [ "$vp" -gt 1 ] && { [ "$pp" = 1 ] || [ $((layers % (pp * vp))) != 0 ]; }; } && continue
    chunks=$vp; [ "$vp" = 1 ] && chunks=
    awk -v OFS=, -v size="$size" -v a="$heads" -v h="$hidden" -v l="$layers" -v t="$tp" -v p="$pp" -v n="$gpus" -v b="$batch" -v f="$tflops" -v m="$micro" -v vp="$chunks" -v rest="$values,full,uniform,1" "$scale"'
      BEGIN { if (b % (m * n / t / p) == 0) print size " billion", f, scale(h, l, b, n), a, h, l, t, p, n / t / p, vp, b, m, "", "megatron_2021", rest }' >>rows.csv
  done; done
done <<END
1.7,24,2304,24,1,1,32,512,137
3.6,32,3072,30,2,1,64,512,138
7.5,32,4096,36,4,1,128,512,142
18.4,48,6144,40,8,1,256,1024,135
39.1,64,8192,48,8,2,512,1536,138
76.1,80,10240,60,8,4,1024,1792,140
145.6,96,12288,80,8,8,1536,2304,148
310.1,128,16384,96,8,16,1920,2160,155
529.6,128,20480,105,8,35,2520,2520,163
1008.0,160,25600,128,8,64,3072,3072,163
END
# table 2, rows of tensor and pipeline parallelism
while IFS=, read -r size pp batch gpus micro tflops; do
  heads=96 hidden=12288 layers=96
  [ "$size" = 529.6 ] && heads=128 hidden=20480 layers=105
  awk -v OFS=, -v name="$size billion on $gpus" -v a=$heads -v h=$hidden -v l=$layers -v p="$pp" -v n="$gpus" -v b="$batch" -v f="$tflops" -v m="$micro" -v rest="$values,full,uniform,1" "$scale"'
    BEGIN { print name, f, scale(h, l, b, n), a, h, l, 8, p, n / 8 / p, "", b, m, "", "megatron_2021", rest }' >>rows.csv
done <<END
174.6,12,1536,384,1,153
174.6,12,1536,768,1,149
174.6,12,1536,1536,1,141
529.6,35,2240,560,1,171
529.6,35,2240,1120,1,167
529.6,35,2240,2240,1,159
END
# Korthikanti et al. 2022, table 5, in seconds; Calculon's eight cases are these
while IFS=, read -r size heads hidden layers tp pp vp gpus batch micro full_s selective_s; do
  [ "$vp" = 1 ] && vp=
  echo "$size full,$full_s,0,$heads,$hidden,$layers,$tp,$pp,1,$vp,$batch,$micro,,megatron_2022,$values,full,uniform,1" >>rows.csv
  echo "$size selective,$selective_s,0,$heads,$hidden,$layers,$tp,$pp,1,$vp,$batch,$micro,true,megatron_2022,$values,,," >>rows.csv
done <<END
22B,64,6144,48,8,1,1,8,4,4,1.42,1.10
175B,96,12288,96,8,8,3,64,64,1,18.13,13.75
530B,128,20480,105,8,35,3,280,280,1,49.05,37.83
1T,160,25600,128,8,64,1,512,512,1,94.42,71.49
END
"$monotron" plan table rows.csv --machine "$PWD/megatron.yaml" >said.csv
# the fastest candidate of each name, of those that fit where one does, and its published seconds
awk -F, -v OFS=, '
  function kept(line) { sub(/,[^,]*,[^,]*,[^,]*$/, "", line); return line }
  NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; print kept($0), "seconds"; next }
  { name = $at["name"]; t = $at["predicted_seconds"] + 0; if (t == 0) next
    if (!(name in best)) order[++n] = name; else if ($NF == fits[name] ? t >= best[name] : $NF != "true") next
    best[name] = t; fits[name] = $NF; row[name] = kept($0); was[name] = $at["scale"] > 0 ? $at["scale"] / $at["published"] : $at["published"] }
  END { for (i = 1; i <= n; i++) print row[order[i]], was[order[i]] }' said.csv >megatron.csv
"$monotron" plan table megatron.csv --machine "$PWD/megatron.yaml" --fit seconds >said.csv 2>fitted
awk -F, '
  NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
  { regime = $at["regime"]; off = $at["predicted_seconds"] / $at["seconds"] - 1; judged = row[regime]++ % 2
    said = $at["scale"] > 0 ? $at["scale"] / $at["predicted_seconds"] : $at["predicted_seconds"]; unit = $at["scale"] > 0 ? "TFLOP/s" : "s"
    printf("| %s | %s | %s %s | %.4g | %+.1f %% | %s | micro-batch %s%s |\n", regime, $at["name"], $at["published"], unit, said, 100 * off, judged ? "judged" : "fitted", $at["micro_batch"], $at["vp"] ? ", " $at["vp"] " chunks" : "")
    if (off < 0) off = -off; if (judged) { all++; every += off; if (off > worst) worst = off } }
  END { printf("Megatron on A100s, errors of seconds: %d rows judged, mean %.1f %%, worst %.1f %%\n", all, 100 * every / all, 100 * worst) }' said.csv
cat fitted
echo

# Narayanan et al. 2021, table 2, rows of ZeRO-3
echo "name,published,scale,heads,hidden,layers,dp,vp,global_batch,micro_batch,data_parallel_sharding_strategy,use_distributed_optimizer,overlap_grad_reduce,$gpt,$full" >rows.csv
while IFS=, read -r size batch gpus micro tflops; do
  heads=96 hidden=12288 layers=96
  [ "$size" = 529.6 ] && heads=128 hidden=20480 layers=105
  awk -v OFS=, -v name="$size billion on $gpus" -v a=$heads -v h=$hidden -v l=$layers -v n="$gpus" -v b="$batch" -v f="$tflops" -v m="$micro" -v rest="$values,full,uniform,1" "$scale"'
    BEGIN { print name, f, scale(h, l, b, n), a, h, l, n, "", b, m, "optim_grads_params", "true", "true", rest }' >>rows.csv
done <<END
174.6,1536,384,4,144
174.6,1536,768,2,88
174.6,1536,1536,1,44
529.6,2560,640,4,138
529.6,2240,1120,2,98
529.6,2240,2240,1,48
END
judge "Narayanan et al. 2021, table 2, ZeRO-3 (another program's, nothing of it overlapped is known), TFLOP/s a GPU" "$PWD/megatron.yaml"

# Llama 3 405B, table 4: TFLOP/s a GPU, 6 N and causal attention a token
echo "name,published,scale,heads,hidden,layers,tp,cp,pp,dp,vp,global_batch,micro_batch,group_query_attention,num_query_groups,ffn_hidden_size,swiglu,normalization,position_embedding_type,disable_bias_linear,untie_embeddings_and_output_weights,sequence_parallel,use_distributed_optimizer,overlap_grad_reduce,account_for_embedding_in_pipeline_split,account_for_loss_in_pipeline_split,attention_dropout,hidden_dropout,$gpt" >rows.csv
while IFS=, read -r gpus tp cp pp dp seq batch tflops; do
  for vp in 1 2 4 8; do
    chunks=$vp; [ "$vp" = 1 ] && chunks=
    awk -v OFS=, -v n="$gpus" -v t="$tp" -v c="$cp" -v p="$pp" -v d="$dp" -v s="$seq" -v b="$batch" -v f="$tflops" -v vp="$chunks" 'BEGIN {
      tokens = s * b * d; print n " H100 with sequences of " s, f, tokens * (6 * 405e9 + 6 * 126 * 16384 * s) / n / 1e12, 128, 16384, 126, t, c, p, d, vp, b * d, 1, "true", 8, 53248, "true", "RMSNorm", "rope", "true", "true", "true", "true", "true", "true", "true", 0, 0, s, s, 128256, "true" }' >>rows.csv
  done
done <<END
8192,8,1,16,64,8192,32,430
16384,8,1,16,128,8192,16,400
16384,8,16,16,8,131072,16,380
END
judge "Llama 3 405B, table 4, TFLOP/s a GPU" h100 any

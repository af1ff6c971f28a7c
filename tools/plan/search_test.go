package plan

import (
	"encoding/json"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

const bloom = "--num-layers 70 --hidden-size 14336 --num-attention-heads 112 --seq-length 2048 --max-position-embeddings 2048 --global-batch-size 2048 --train-iters 1000 --lr 1e-4 --bf16 " +
	"--tokenizer-type NullTokenizer --vocab-size 250680 --mock-data --position-embedding-type alibi --embed-layernorm"

// Claim (docs/plan.md): for BLOOM-176B on its 384 devices the search finds a layout at least as
// fast, by the same clock, as the published one (tp 4, pp 12, dp 8, micro-batch 2, full
// recomputation); what it finds fits, and training takes it.
func TestSearchBeatsThePublishedLayout(t *testing.T) {
	out, err := call(append([]string{"search", "--gpus", "384", "--machine", "a100-bloom", "--memory", "78GiB", "--json"}, strings.Fields(bloom)...)...)
	if err != nil {
		t.Fatal(err)
	}
	var found searchReport
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatal(err)
	}
	published := "--world-size 384 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 12 --micro-batch-size 2 --use-distributed-optimizer --recompute-granularity full " +
		"--recompute-method uniform --recompute-num-layers 1 --pp-partition-method type:transformer|embedding"
	planned := func(layout string) memoryReport {
		out, err := call(append([]string{"run", "--machine", "a100-bloom", "--json", "pretrain_gpt"}, strings.Fields(bloom+" "+strings.ReplaceAll(layout, "'", ""))...)...)
		if err != nil {
			t.Fatal(err)
		}
		var r memoryReport
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	theirs, ours := planned(published), planned(found.Best[0].Flags)
	t.Logf("%d layouts in %.1f s; published %.1f s a step, found %.1f s with %s", found.Tried, found.Seconds, theirs.Seconds, ours.Seconds, found.Best[0].Flags)
	if len(found.Best) != 10 || ours.Seconds > theirs.Seconds || !*ours.Fits || ours.Seconds != found.Best[0].Seconds {
		t.Errorf("%d found; the best takes %g s by the search, %g by plan run, the published one %g", len(found.Best), found.Best[0].Seconds, ours.Seconds, theirs.Seconds)
	}
	for i, f := range found.Best {
		if f.Peak > 78<<30 || i > 0 && f.Seconds < found.Best[i-1].Seconds {
			t.Errorf("layout %d: %+v", i, f)
		}
	}
	for i, f := range found.Front {
		if i > 0 && (f.Peak >= found.Front[i-1].Peak || f.Seconds < found.Front[i-1].Seconds) {
			t.Errorf("of the front, %d: %+v", i, f)
		}
	}
	if len(found.Rules) != 3 {
		t.Errorf("%q", found.Rules)
	}
}

// Claim (docs/plan.md): a known model needs no further flags of its shape, and what no layout depends on may be
// missing; the layouts are those of the complete command line, and the line to paste has the flags as they were given.
func TestSearchOfAKnownModel(t *testing.T) {
	search := func(flags string) (r searchReport) {
		t.Helper()
		out, err := call(append(strings.Fields("search --gpus 4 --machine h100 --best 3 --json"), strings.Fields(flags)...)...)
		if err == nil {
			err = json.Unmarshal([]byte(out), &r)
		}
		if err != nil {
			t.Fatalf("%s: %v", flags, err)
		}
		return r
	}
	short := search("--model gpt2-124m --global-batch-size 64 --bf16")
	full := search("pretrain_gpt --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 --max-position-embeddings 1024 --global-batch-size 64 --bf16 --train-iters 9 --lr 1e-3 " +
		"--mock-data --tokenizer-type NullTokenizer --vocab-size 50257")
	if len(short.Best) != 3 || short.Best[0] != full.Best[0] || short.Tried != full.Tried {
		t.Errorf("%+v, want %+v", short, full)
	}
	out, err := call(strings.Fields("search --gpus 4 --machine h100 --model gpt2-124m --global-batch-size 64 --bf16")...)
	if err != nil || !strings.Contains(out, "\npretrain_gpt --model gpt2-124m --global-batch-size 64 --bf16 --world-size 4 ") {
		t.Errorf("%v: %s", err, out)
	}
	for line, want := range map[string]string{
		"search --gpus 4 --machine h100 --model gpt2-124m":                       "plan search needs the flags of the model and the batch; add --global-batch-size,",
		"search --gpus 4 --machine h100 --model gtp2-124m --global-batch-size 8": `--model: unknown model preset "gtp2-124m"; did you mean gpt2-124m`,
		"run pretrain_gpt --model llama3-8":                                      `--model: unknown model preset "llama3-8"; did you mean llama3-8b`,
	} {
		_, err := call(strings.Fields(line)...)
		if exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// Claim: devices that cannot be, and a model that fits nowhere, have one clear answer.
func TestSearchRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"search --machine h100 " + bloom:                                           "plan search needs --gpus, the number of devices, from 1 to 65536",
		"search --gpus -3 --machine h100 " + bloom:                                 "--gpus must be from 1 to 65536, not -3",
		"search --gpus 8 " + bloom:                                                 "plan search needs --machine, a machine file or one of ",
		"search --gpus 8 --machine h100":                                           "add --num-layers, --hidden-size, --num-attention-heads, --seq-length and --global-batch-size, or --model NAME",
		"search --gpus 8 --machine h100 --memory lots " + bloom:                    "not a size",
		"search --gpus 7 --machine h100 " + bloom:                                  "no layout of 7 devices",
		"search --gpus 8 --machine h100 --best 0 " + bloom:                         "--best must be from 1 to 100, not 0",
		"search --gpus 8 --machine a100 " + bloom:                                  "no layout of 8 devices fits",
		"run --jitter 1 pretrain_gpt --world-size 8":                               "--machine",
		"run --machine h100 --jitter -1 pretrain_gpt --world-size 8":               "--jitter must be from 0 to 10, not -1",
		"run --machine /nowhere/x.yaml pretrain_gpt --world-size 8 --num-layers 2": "does not exist",
	} {
		_, err := call(strings.Fields(line)...)
		if err == nil || exitcode.CodeOf(err) == exitcode.Internal || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n\n") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

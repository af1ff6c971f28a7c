package tests

import (
	"fmt"
	"strings"
	"time"
)

// mixed is a small model whose layers are mixtures of four experts, with a shared one.
const mixed = "--num-layers 3 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16 --micro-batch-size 1 " +
	"--global-batch-size 8 --lr 1e-2 --log-interval 1 --eval-iters 0 --device ref --vocab-size 50 --make-vocab-size-divisible-by 2 " +
	"--tokenizer-type NullTokenizer --split 1,0,0 --data-path text_text_document --swiglu --disable-bias-linear --num-experts 4 --moe-router-topk 2 " +
	"--moe-aux-loss-coeff 1e-2 --expert-model-parallel-size 2 --moe-shared-expert-intermediate-size 32 --hidden-dropout 0 --attention-dropout 0 "

// Claim (docs/experts.md): one token that is not a number goes to its experts and back like
// others, by either dispatcher, and the run ends with one line that names where it began.
func nanAmongExperts(l *launching) {
	t := l.t
	for _, dispatcher := range []string{"alltoall", "allgather"} {
		for _, start := range []string{"pretrain_gpt --world-size 2 ", "launch --nproc-per-node 2 -- pretrain_gpt "} {
			cmd, notes := l.command(start + mixed + "--train-iters 5 --moe-token-dispatcher-type " + dispatcher + " --inject nan:rank=1:step=3:layer=1")
			begin := time.Now()
			_ = cmd.Run() // its code says it
			lines := strings.Split(strings.TrimSpace(notes.String()), "\n")
			last := lines[len(lines)-1]
			const where = "first in the output of layer 0 on rank 1, micro-batch 0, samples ["
			if code := cmd.ProcessState.ExitCode(); code != 70 || !strings.HasPrefix(last, "monotron: ") || strings.Count(notes.String(), "monotron: ") != 1 ||
				!strings.Contains(last, "iteration 3: loss NaN") || !strings.Contains(last, where) {
				t.Errorf("%s%s: code %d: %s", start, dispatcher, code, notes)
			}
			if took := time.Since(begin); took > slow {
				t.Errorf("%s%s took %v", start, dispatcher, took)
			}
		}
	}
}

// Claim (docs/experts.md): the shared expert gives the same bits during the exchange as after the
// experts, as goroutines and as processes, where its own ranks exchange meanwhile.
func expertsDuringShared(l *launching) {
	t := l.t
	const line = mixed + "--moe-token-dispatcher-type alltoall --tensor-model-parallel-size 2 --expert-tensor-parallel-size 1 --sequence-parallel --train-iters 4 --save-interval 4 "
	l.must("pretrain_gpt --world-size 4 " + line + "--log-jsonl after.jsonl --save after")
	l.must("pretrain_gpt --world-size 4 " + line + "--moe-shared-expert-overlap --log-jsonl beside.jsonl --save beside")
	l.must("launch --nproc-per-node 4 -- pretrain_gpt " + line + "--moe-shared-expert-overlap --log-jsonl processes.jsonl --save processes")
	want := l.numbers("after.jsonl")
	if strings.Count(want, "grad_norm") < 4 {
		t.Fatal(want)
	}
	for _, name := range []string{"beside", "processes"} {
		if got := l.numbers(name + ".jsonl"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
		for rank := range 4 {
			file := fmt.Sprintf("/iter_0000004/rank_%05d.safetensors", rank)
			if a, b := l.read("after"+file), l.read(name+file); a == "" || a != b {
				t.Errorf("%s%s: %d bytes and %d bytes, which differ", name, file, len(a), len(b))
			}
		}
	}
}

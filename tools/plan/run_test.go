package plan

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
)

// peaks are the most bytes of every rank of a mixture on H100s, as `plan run` says them.
func peaks(flags, more string) (all []int64, err error) {
	var out bytes.Buffer
	app := &cli.App{Name: "monotron", Commands: []*cli.Command{Command(nil)}, Writer: &out, ErrWriter: io.Discard, ExitErrHandler: func(*cli.Context, error) {}}
	line := "monotron plan run --json --machine h100 " + flags + " pretrain_gpt --num-layers 2 --hidden-size 64 --num-attention-heads 4 --ffn-hidden-size 512 --seq-length 256 " +
		"--max-position-embeddings 256 --micro-batch-size 4 --global-batch-size 64 --train-iters 10 --lr 1e-3 --tokenizer-type NullTokenizer --vocab-size 100 --mock-data " + more
	if err := app.Run(strings.Fields(line)); err != nil {
		return nil, err
	}
	var r memoryReport
	err = json.Unmarshal(out.Bytes(), &r)
	for _, rank := range r.Ranks {
		all = append(all, rank.Peak)
	}
	return all, err
}

// Claim (docs/plan.md): --experts-at-most counts a rank as if every token chose its experts, as
// far as these have room; a rank that has all experts holds the same.
func TestExpertsAtMost(t *testing.T) {
	const four = "--num-experts 4 --moe-router-topk 1 --moe-router-pre-softmax --world-size 4 "
	planned := func(flags, more string) []int64 {
		t.Helper()
		all, err := peaks(flags, more)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for _, dispatcher := range []string{"allgather", "alltoall"} {
		line := four + "--expert-model-parallel-size 4 --moe-token-dispatcher-type " + dispatcher
		even, most, room := planned("", line), planned("--experts-at-most", line), planned("--experts-at-most", line+" --moe-expert-capacity-factor 2")
		for rank := range even {
			if !(even[rank] < room[rank] && room[rank] < most[rank]) {
				t.Errorf("%s: rank %d: %d bytes where tokens choose evenly, %d with twice the room, %d without a limit", dispatcher, rank, even[rank], room[rank], most[rank])
			}
		}
	}
	if even, most := planned("", four), planned("--experts-at-most", four); !slices.Equal(even, most) {
		t.Errorf("ranks with all experts: %v and %v", even, most)
	}
	if _, err := peaks("--experts-at-most", ""); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "give --num-experts") {
		t.Errorf("a dense model: %v", err)
	}
}

// Claim: one of a thing is told in the singular.
func TestOneEvaluation(t *testing.T) {
	for n, want := range map[int]string{0: "0 evaluations", 1: "1 evaluation", 2: "2 evaluations"} {
		if got := counted(n, "evaluation"); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}

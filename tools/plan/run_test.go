package plan

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/megatron/plan"
	"monotron/tools/internal/command"
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
// far as these have space; a rank that has all experts holds the same.
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
		even, most, capacity := planned("", line), planned("--experts-at-most", line), planned("--experts-at-most", line+" --moe-expert-capacity-factor 2")
		for rank := range even {
			if !(even[rank] < capacity[rank] && capacity[rank] < most[rank]) {
				t.Errorf("%s: rank %d: %d bytes where tokens choose evenly, %d with twice the room, %d without a limit", dispatcher, rank, even[rank], capacity[rank], most[rank])
			}
		}
	}
	if even, most := planned("", four), planned("--experts-at-most", four); !slices.Equal(even, most) {
		t.Errorf("ranks with all experts: %v and %v", even, most)
	}
	if _, err := peaks("--experts-at-most", ""); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "--experts-at-most needs --num-experts") {
		t.Errorf("a dense model: %v", err)
	}
}

// Claim (docs/plan.md): a model's name or its config.json is a plan's complete command line, with and without pretrain_gpt; the vocabulary is
// the model's; the last line is the verdict; advice comes in the order in which people take it, and only where it is needed.
func TestShortPlans(t *testing.T) {
	folder := t.TempDir()
	config := `{"model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": true}`
	if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	say := func(line string) (string, error) {
		var out bytes.Buffer
		app := &cli.App{Name: "monotron", Commands: []*cli.Command{Command(nil)}, Writer: &out, ErrWriter: io.Discard, ExitErrHandler: func(*cli.Context, error) {}}
		err := app.Run(strings.Fields("monotron plan run --machine h100 " + line))
		return out.String(), err
	}
	inOrder := func(text string, words ...string) bool {
		for _, word := range words {
			_, rest, found := strings.Cut(text, word)
			if !found {
				return false
			}
			text = rest
		}
		return true
	}
	// 1000 ids, padded to 1024, x 64; per layer 4 x 64 x 64 of attention, 3 x 64 x 128 of the MLP and two norms; the last norm.
	for _, line := range []string{"--load " + folder, "--load=" + folder + "/config.json", "pretrain_gpt --seq-length 256 --micro-batch-size 1 --load " + folder + "/config.json"} {
		text, err := say(line)
		if err != nil || !inOrder(text, "147776 parameters in f32 on 1 rank ", "\nfits: ") || strings.Contains(text, "saves") || strings.Contains(text, "assumed") == strings.Contains(line, "pretrain_gpt") {
			t.Errorf("%s: %v\n%s", line, err, text)
		}
	}
	text, err := say("--model llama-3-8b --world-size 2 --micro-batch-size 2 --seq-length 2048")
	if exitcode.CodeOf(err) != exitcode.Differs || !inOrder(text, "8.03 billion parameters", ", --micro-batch-size 1 saves", ", --recompute", ", --use-distributed-optimizer saves", ", --optimizer-cpu-offload") {
		t.Errorf("%v\n%s", err, text)
	}
	for line, want := range map[string]string{"": "the training command is missing", "--model zzz": `unknown model preset "zzz"`, "--num-layers 2": "--hidden-size is missing"} {
		if _, err := say(line); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "--lr") && line != "--model zzz" {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// Claim (docs/plan.md): plan run ends with one verdict, and with code 1 where the ranks lack memory.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		have, peak, scratch int64
		threads             int
		want                string
		code                exitcode.Code
	}{
		{10 << 30, 3 << 30, 1 << 30, 0, "fits: rank 1 needs 4.0 GiB of the 10.0 GiB of m, 6.0 GiB free\n", exitcode.Done},
		{3 << 30, 3 << 30, 1 << 30, 0, "the run does not fit into memory: rank 1 needs 4.0 GiB, but m has 3.0 GiB", exitcode.Differs},
		{10 << 30, 3 << 30, 1 << 30, 2, "fits: the ranks together need 6.0 GiB of the 10.0 GiB of m, 4.0 GiB free\n", exitcode.Done},
		{5 << 30, 3 << 30, 1 << 30, 2, "the run does not fit into memory: the ranks together need 6.0 GiB, but m has 5.0 GiB", exitcode.Differs},
	} {
		var out bytes.Buffer
		p := &runPlan{machine: &plan.Machine{Name: "m", Memory: plan.Bytes(c.have), Threads: c.threads, PerNode: 2},
			ranks: []plan.Rank{{Number: 0, Peak: 1 << 30, Scratch: 1 << 30}, {Number: 1, Peak: c.peak, Scratch: c.scratch}}}
		err := p.verdict(&command.Printer{W: &out})
		if got := out.String(); err != nil && err.Error() != c.want || err == nil && got != c.want || exitcode.CodeOf(err) != c.code {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
	for days, want := range map[float64]string{0.0001: "8.64 seconds", 0.02: "28.8 minutes", 0.5: "12 hours", 52.5: "52.5 days", 2082: "5.7 years"} {
		if got := lasting(days); got != want {
			t.Errorf("%g days: %s, want %s", days, got, want)
		}
	}
	for x, want := range map[float64]string{12: "12", 9999: "9999", 201400: "201k", 1.05e6: "1.05M", 2.5e9: "2.5B"} {
		if got := money(x); got != want {
			t.Errorf("%g: %s, want %s", x, got, want)
		}
	}
}

package plan

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
)

// planned runs `plan run` of a model on 1,024 H100s with these flags of its own and of the run.
func planned(t *testing.T, flags, more string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	app := &cli.App{Name: "monotron", Commands: []*cli.Command{Command(nil)}, Writer: &out, ErrWriter: io.Discard, ExitErrHandler: func(*cli.Context, error) {}}
	line := "monotron plan run " + flags + " pretrain_gpt --num-layers 16 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --world-size 1024 --bf16 " +
		"--use-distributed-optimizer --micro-batch-size 1 --global-batch-size 8192 --train-iters 200000 --lr 1e-3 --tokenizer-type NullTokenizer --vocab-size 50000 --mock-data --eval-iters 0 " + more
	err := app.Run(strings.Fields(line))
	return out.String(), err
}

// Claim (docs/plan.md): with --machine h100 a plan counts failures; the days with them are those of the steps over the
// goodput, spare nodes are paid for, and an interval that is given is compared with the best.
func TestGoodputOfARun(t *testing.T) {
	report := func(flags, more string) (r struct {
		Days    float64
		Seconds float64        `json:"seconds_per_step"`
		With    *goodputReport `json:"with_failures"`
	}) {
		t.Helper()
		text, err := planned(t, "--json --machine h100 --price 2 "+flags, more)
		if err == nil {
			err = json.Unmarshal([]byte(text), &r)
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	plain := report("--save-seconds 20", "")
	g := plain.With
	if g == nil || !(g.Share > 0.9 && g.Share < 1) || math.Abs(g.Days*g.Share/plain.Days-1) > 1e-9 || math.Abs(g.Between*1024/3600-50700) > 1e-6 ||
		math.Abs(g.Failures*g.Between/86400/g.Days-1) > 1e-9 || math.Abs(g.Cost/(g.Days*24*2*1024)-1) > 1e-9 ||
		math.Abs(g.Lost/(g.Cost*(1-g.Share))-1) > 1e-9 || g.Every != g.Best {
		t.Fatalf("%+v of %v days", g, plain.Days)
	}
	if often := report("--save-seconds 20", "--save ck --save-interval 20").With; math.Abs(often.Every-20) > 1e-6 || often.Best != g.Best || often.Share >= g.Share || often.AtBest != g.Share {
		t.Errorf("a checkpoint every 20 steps: %+v; best %+v", often, g)
	}
	if async := report("--save-seconds 20", "--save ck --async-save").With; async.Share <= g.Share || math.Abs(async.Best*plain.Seconds-20) > 1e-6 {
		t.Errorf("with --async-save %+v, without %+v", async, g)
	}
	if spare := report("--save-seconds 20 --spare-nodes 4", "").With; math.Abs(spare.Cost/(spare.Days*24*2*1056)-1) > 1e-9 ||
		math.Abs((spare.Cost-spare.Lost)/(plain.Days*24*2*1024)-1) > 1e-9 || spare.Waits <= 0 || spare.Share >= g.Share {
		t.Errorf("with 4 spare nodes %+v, without %+v", spare, g)
	}
	if rare := report("--save-seconds 20 --device-mtbf 1e6 --restart-seconds 60", "").With; rare.Share <= g.Share {
		t.Errorf("with rarer failures %+v, with those of the file %+v", rare, g)
	}
	if unknown := report("", "").With; unknown != nil {
		t.Errorf("without the time of a checkpoint: %+v", unknown)
	}
}

// Claim: the lines say the goodput, or what it needs; flags without their extras are refused.
func TestGoodputInText(t *testing.T) {
	for flags, want := range map[string]string{
		"--machine h100 --save-seconds 20":                                   "goodput 9",
		"--machine h100 --save-seconds 20 --price 2":                         "for 1024 devices, of which ",
		"--machine h100":                                                     "give --save-seconds, the time of a checkpoint, to compute the goodput",
		"--machine h200 --device-mtbf 5e4 --save-seconds 20 --spare-nodes 1": "of the failures find no spare node",
	} {
		if text, err := planned(t, flags, ""); err != nil || !strings.Contains(text, want) {
			t.Errorf("%s: %v, %s; want %q", flags, err, text, want)
		}
	}
	if text, err := planned(t, "--machine h200", ""); err != nil || strings.Contains(text, "failure") {
		t.Errorf("a machine whose failures nobody knows: %v %s", err, text)
	}
	for flags, want := range map[string]string{
		"--spare-nodes 4":                    "--spare-nodes needs --machine",
		"--machine h200 --restart-seconds 9": "--restart-seconds needs --device-mtbf, because machine h200 gives no mean time between failures of a device",
		"--machine h100 --device-mtbf 0":     "--device-mtbf",
	} {
		if _, err := planned(t, flags, ""); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", flags, err, want)
		}
	}
}

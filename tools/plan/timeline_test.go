package plan

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Claim: plan run draws the step whose seconds it prints, as a picture, as a trace and as
// text; evaluations count in the days, and checkpoints where the disk's rate is known.
func TestPlannedTimeline(t *testing.T) {
	folder := t.TempDir()
	svg, trace := filepath.Join(folder, "x.svg"), filepath.Join(folder, "x.json")
	const run = "pretrain_gpt --num-layers 8 --hidden-size 1024 --num-attention-heads 8 --seq-length 512 --max-position-embeddings 512 --micro-batch-size 1 --global-batch-size 16 --train-iters 1000 " +
		"--lr 1e-4 --bf16 --tokenizer-type NullTokenizer --vocab-size 1000 --mock-data --world-size 8 --pipeline-model-parallel-size 4 "
	out, err := call(strings.Fields("run --machine h100 --json --svg " + svg + " --trace " + trace + " " + run + "--eval-interval 100 --eval-iters 10")...)
	if err != nil {
		t.Fatal(err)
	}
	var said memoryReport
	if err := json.Unmarshal([]byte(out), &said); err != nil {
		t.Fatal(err)
	}
	if want := (1000*said.Seconds + 10*said.Eval) / 86400; said.Eval <= 0 || math.Abs(said.Days/want-1) > 1e-9 {
		t.Errorf("%g days, %g s an evaluation: want %g days", said.Days, said.Eval, want)
	}
	picture, err := os.ReadFile(svg)
	if err != nil || !strings.HasPrefix(string(picture), "<svg") {
		t.Errorf("the picture: %v, %.60s", err, picture)
	}
	var events struct {
		Events []struct {
			Phase string  `json:"ph"`
			Name  string  `json:"name"`
			Row   int     `json:"tid"`
			At    float64 `json:"ts"`
			For   float64 `json:"dur"`
		} `json:"traceEvents"`
	}
	text, err := os.ReadFile(trace)
	if err == nil {
		err = json.Unmarshal(text, &events)
	}
	end, boxes := 0.0, map[string]int{}
	for _, e := range events.Events {
		if e.Phase == "X" {
			what, _, _ := strings.Cut(e.Name, " ")
			boxes[what]++
			end = max(end, e.At+e.For)
		}
	}
	if err != nil || math.Abs(end/1e6/said.Seconds-1) > 1e-3 || boxes["forward"] != 32 || boxes["backward"] != 32 || boxes["update"] != 4 {
		t.Errorf("the trace ends at %g s, the step takes %g; boxes %v, %v", end/1e6, said.Seconds, boxes, err)
	}
	if out, err = call(strings.Fields("run --machine h100 --timeline " + run)...); err != nil || !strings.Contains(out, "stage 3 │") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, line := range []string{"run --svg x.svg " + run, "run --trace x.json " + run, "run --timeline " + run, "run --machine h100 --svg " + filepath.Join(folder, "none", "x.svg") + " " + run,
		"run --machine h100 --timeline " + run + "--global-batch-size 2097152"} {
		if _, err := call(strings.Fields(line)...); err == nil {
			t.Errorf("%s: no error", line)
		}
	}
}

package telemetry

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

type goldenLog struct {
	Full       []string `json:"log_of_the_whole_run"`
	Resumed    []string `json:"log_of_the_resumed_run"`
	Iterations []struct {
		Iteration    int
		Loss         float64  `json:"lm_loss"`
		GradNorm     float64  `json:"grad_norm"`
		LearningRate float64  `json:"learning_rate"`
		Consumed     int64    `json:"consumed_samples"`
		ParamsNorm   *float64 `json:"params_norm"`
		NumZeros     *float64 `json:"num_zeros"`
	}
}

var elapsed = regexp.MustCompile(`\(ms\): [0-9.]+ \|`)

// Claim: from the numbers alone our lines are Megatron's, letter for letter
// (golden cases pretrain-*; date and elapsed time masked as there).
func TestGoldenLog(t *testing.T) {
	for _, name := range []string{"pretrain-gpt2", "pretrain-llama"} {
		data, err := os.ReadFile("testdata/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var golden goldenLog
		if err := json.Unmarshal(data, &golden); err != nil {
			t.Fatal(err)
		}
		last := golden.Iterations[len(golden.Iterations)-1].Iteration
		var got []string
		print := func(text string) error {
			got = append(got, strings.Split(elapsed.ReplaceAllString(text, "(ms): X |"), "\n")...)
			return nil
		}
		lines := &Lines{Print: print, Last: true}
		parameters := golden.Full[0][strings.LastIndex(golden.Full[0], " ")+1:]
		count, err := strconv.ParseInt(parameters, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ParameterCount(0, 0, count))
		blocks := validations(golden.Full)
		for _, g := range golden.Iterations {
			at := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
			steps := []*Step{{Time: at, Iteration: g.Iteration, TrainIters: last, ConsumedSamples: g.Consumed, Elapsed: 12345 * time.Microsecond,
				NextLearningRate: g.LearningRate, GlobalBatchSize: 4, Losses: []Value{{"lm loss", g.Loss}}, NextLossScale: 1,
				GradNorm: &g.GradNorm, NumZeros: g.NumZeros, ParamsNorm: g.ParamsNorm, Line: &Interval{}}}
			for _, v := range blocks[g.Iteration] {
				steps = append(steps, &Step{Split: Validation, Where: v.where, Losses: []Value{{"lm loss", v.loss}}})
			}
			for _, s := range steps {
				if err := lines.Take(s); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(got) != len(golden.Full) {
			t.Fatalf("%s: %d lines, want %d", name, len(got), len(golden.Full))
		}
		for i := range got {
			if got[i] = strings.Replace(got[i], "2026-01-02 03:04:05.000000", "DATE", 1); got[i] != golden.Full[i] {
				t.Errorf("%s, line %d:\n%q\nwant\n%q", name, i+1, got[i], golden.Full[i])
			}
		}
	}
}

type evaluated struct {
	where string
	loss  float64
}

// validations takes the numbers out of the validation lines. The perplexity has
// more digits of the loss than the loss itself.
func validations(lines []string) map[int][]evaluated {
	pattern := regexp.MustCompile(`validation loss at (iteration (\d+).*?) \| .* PPL: ([0-9.E+-]+)`)
	out := map[int][]evaluated{}
	for _, line := range lines {
		if m := pattern.FindStringSubmatch(line); m != nil {
			iteration, _ := strconv.Atoi(m[2])
			ppl, _ := strconv.ParseFloat(m[3], 64)
			out[iteration] = append(out[iteration], evaluated{m[1], math.Log(ppl)})
		}
	}
	return out
}

// Claim: optional parts stand where training_log puts them, and numbers are
// written as Python writes them.
func TestOptionalParts(t *testing.T) {
	norm, zeros := math.Inf(1), 1e16
	s := Step{Time: time.Date(2026, 1, 2, 3, 4, 5, 7000, time.UTC), Iteration: 1, TrainIters: 2, ConsumedSamples: 3, SkippedSamples: 4, FLOPs: 1.5 * 123.456e12,
		NextLearningRate: 1e-5, GlobalBatchSize: 8, MoE: []Value{{"load_balancing_loss", 1}}, NextLossScale: 1 << 32, GradNorm: &norm, NumZeros: &zeros}
	m := means{losses: []Value{{"lm loss", math.Inf(1)}, {"bad", math.NaN()}, {"low", -1}}, elapsed: 1500 * time.Millisecond, skipped: 1, nan: 2}
	want := " [2026-01-02 03:04:05.000007] iteration        1/       2 | consumed samples:            3 | skipped samples:            4 |" +
		" elapsed time per iteration (ms): 1500.0 | throughput per GPU (TFLOP/s/GPU): 123.5 | learning rate: 1.000000E-05 | global batch size:     8 |" +
		" lm loss: INF | load_balancing_loss: 1.000000E+00 | loss scale: 4294967296.0 | grad norm: inf | num zeros: 1e+16 |" +
		" number of skipped iterations:   1 | number of nan iterations:   2 |"
	if got := (&Lines{Throughput: true}).line(&s, m); got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
	memory := Memory{Allocated: 1 << 20, MaxAllocated: 3 << 19, Reserved: 1 << 30, MaxReserved: 1<<30 + 10500}
	if got := memory.line(3, 2); got != "[Rank 3] (after 2 iterations) memory (MB) | allocated: 1.00 | max allocated: 1.50 | reserved: 1024.00 | max reserved: 1024.01" {
		t.Error(got)
	}
	one := Step{Iteration: 5, Losses: []Value{{"lm loss", 1.23456}}, Elapsed: 100 * time.Millisecond, Forward: 30 * time.Millisecond, Backward: 60 * time.Millisecond,
		GlobalBatchSize: 4, Tokens: 123}
	for flops, want := range map[float64]string{
		4.56e9: "iter 5: loss 1.2346, dt 100.00ms, dtf 30.00ms, dtb 60.00ms, tok/s 1230, samples/s 40.00, 45.60 GFLOP/s, mfu 45.60%",
		4.5e13: "iter 5: loss 1.2346, dt 100.00ms, dtf 30.00ms, dtb 60.00ms, tok/s 1230, samples/s 40.00, 450.00 TFLOP/s",
	} {
		one.FLOPs, one.Peak = flops, 0
		if strings.Contains(want, "mfu") {
			one.Peak = 1e11
		}
		if got := extras(&one); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestShortestIsPythonsRepr(t *testing.T) {
	for x, want := range map[float64]string{0: "0.0", 1: "1.0", 0.5: "0.5", 123456789: "123456789.0", 1e15: "1000000000000000.0", 1e16: "1e+16", 1e-5: "1e-05", 0.0001: "0.0001"} {
		if got := shortest(x); got != want {
			t.Errorf("%g: %s, want %s", x, got, want)
		}
	}
}

// Claim: the window averages what was not skipped and restarts at each line.
func TestWindow(t *testing.T) {
	var w window
	add := func(loss float64, skipped bool, took time.Duration) {
		w.add(&Step{Losses: []Value{{"lm loss", loss}}, Skipped: skipped, Elapsed: took})
	}
	add(4, false, time.Second)
	add(math.NaN(), true, time.Second)
	add(2, false, 4*time.Second)
	if m := w.take(); m.losses[0].Value != 3 || m.elapsed != 2*time.Second || m.skipped != 1 || m.nan != 1 {
		t.Errorf("%+v", m)
	}
	add(1, false, time.Second)
	if m := w.take(); m.losses[0].Value != 1 || m.skipped != 0 || m.nan != 0 {
		t.Errorf("second line: %+v", m)
	}
}

// Claim: the timers' text is that of megatron/core/timers.py for each option.
func TestTimerLines(t *testing.T) {
	names := []string{"forward-backward", "never", "optimizer"}
	seconds := [][]float64{{0.4, 0, 0.02}, {0.2, 0, 0}}
	dots := func(name string) string { return name + " " + strings.Repeat(".", 47-len(name)) }
	for option, want := range map[string]string{
		"minmax": "(min, max) time across ranks (ms):\n    " + dots("forward-backward") + ": (100.00, 200.00)\n    " + dots("optimizer") + ": (10.00, 10.00)",
		"max":    "max time across ranks (ms):\n    " + dots("forward-backward") + ": 200.00\n    " + dots("optimizer") + ": 10.00",
		"all":    "times across ranks (ms):\n  forward-backward:\n     rank  0: 200.00\n     rank  1: 100.00\n  optimizer:\n     rank  0: 10.00",
	} {
		table := TimerTable{option, names, seconds}
		if got := table.text(2); got != want || !table.timed() {
			t.Errorf("%s:\n%s\nwant\n%s", option, got, want)
		}
	}
	if none := (TimerTable{"all", names[1:2], [][]float64{{0}}}); none.timed() {
		t.Errorf("nothing timed: %q", none.text(1))
	}
}

// Claim: timers above the level do not run; taking times resets them.
func TestTimers(t *testing.T) {
	tm := NewTimers(LevelStep)
	for range 2 {
		tm.Time("optimizer", LevelStep, func() { time.Sleep(time.Millisecond) })
		tm.Time("forward-compute", LevelMicro, func() {})
	}
	if got := tm.Elapsed("optimizer"); got < 2*time.Millisecond {
		t.Errorf("two sleeps take %v", got)
	}
	if fmt.Sprint(tm.Names()) != "[optimizer]" {
		t.Errorf("timers %v", tm.Names())
	}
	if got := tm.Take([]string{"optimizer", "forward-compute"}); got[0] < 2e-3 || got[1] != 0 {
		t.Errorf("%v", got)
	}
	if tm.Elapsed("optimizer") != 0 {
		t.Error("taking does not reset")
	}
	if n := len(LoggedTimers(0)) + 100*len(LoggedTimers(1)) + 10000*len(LoggedTimers(2)); n != 251200 {
		t.Errorf("timers by level: %d", n)
	}
}

// Claim: the memory table has a row a rank; of many ranks it keeps the fullest.
func TestMemoryTable(t *testing.T) {
	row := func(name string, mib float64) RankMemory {
		return RankMemory{Rank: name, ByPurpose: []float64{mib * (1 << 20), 1 << 20}, AtOnce: (mib + 1) * (1 << 20)}
	}
	got := (&Usage{[]string{"parameters", "activations"}, []RankMemory{row("0", 3), row("1", 5)}}).table()
	for _, want := range []string{"parameters  activations  at once", "0        3.00         1.00     4.00", "1        5.00         1.00     6.00"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	var many []RankMemory
	for i := range 40 {
		many = append(many, row(fmt.Sprint("r", i), float64(i)))
	}
	got = (&Usage{[]string{"a", "b"}, many}).table()
	if !strings.Contains(got, "r39") || strings.Contains(got, "r3 ") || !strings.Contains(got, "24 ranks with less") {
		t.Errorf("the fullest of many:\n%s", got)
	}
}

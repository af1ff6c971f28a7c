package bench

import (
	"bufio"
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/tools/internal/command"
	"monotron/tools/internal/timing"
)

// startLine is a small run: the shape of shakespeare_char on made-up data.
var startLine = strings.Fields(`pretrain_gpt --num-layers 4 --hidden-size 128 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64
	--micro-batch-size 12 --train-iters 1 --lr 0.001 --lr-decay-style constant --mock-data --tokenizer-type NullTokenizer --vocab-size 65
	--log-interval 1 --eval-iters 0 --eval-interval 1000`)

const startRuns = 5

// start runs this program as pretrain_gpt and times the first finished step, as
// its log line gives it, from before the process exists.
func start(c *cli.Context) error {
	line := append(slices.Clone(startLine), "--device", c.String("device"), "--cpu-threads", strconv.Itoa(c.Int("cpu-threads")))
	var times []float64
	for range startRuns {
		cmd, err := timing.Again(c.Context, line...)
		if err != nil {
			return err
		}
		took, err := firstStep(cmd)
		if err != nil {
			return err
		}
		times = append(times, took.Seconds())
	}
	slices.Sort(times)
	out := &command.Printer{W: c.App.Writer}
	if !c.Bool("json") {
		out.Printf("process start to first finished step: median of %d %.3f s, fastest %.3f s\n", startRuns, times[startRuns/2], times[0])
		return out.Err
	}
	text, err := json.Marshal(map[string]any{"start_to_first_step_seconds": times[startRuns/2], "fastest_seconds": times[0], "runs": startRuns})
	out.Printf("%s\n", text)
	if err != nil {
		return err
	}
	return out.Err
}

// firstStep starts cmd and waits for its line of the first iteration.
func firstStep(cmd *exec.Cmd) (took time.Duration, err error) {
	var notes strings.Builder
	cmd.Stderr = &notes
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, exitcode.With(exitcode.IO, err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, exitcode.With(exitcode.IO, err)
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if strings.Contains(lines.Text(), " iteration ") {
			took = time.Since(began)
			break
		}
	}
	_, _ = io.Copy(io.Discard, stdout) // let it end by itself
	if err := cmd.Wait(); err != nil {
		return 0, exitcode.Errorf(exitcode.Internal, "pretrain_gpt: %w\n%s", err, notes.String())
	}
	if took == 0 {
		return 0, exitcode.Errorf(exitcode.Internal, "pretrain_gpt printed no log line\n%s", notes.String())
	}
	return took, nil
}

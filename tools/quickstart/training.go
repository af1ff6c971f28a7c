package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"monotron/fault"
	"monotron/megatron/dashboard"
	"monotron/whole"
)

const (
	checkpoints = folder + "/checkpoint"
	setAside    = folder + "/killed" // what the killed run wrote last, for comparison
	stepsFile   = folder + "/steps.jsonl"
	trainLog    = folder + "/train.log"
)

const (
	trainTime   = 90 * time.Second // of undisturbed training
	saves       = 10               // checkpoints a run
	trySteps    = 12               // to measure the speed: their median, as the first ones warm up
	fewestSteps = 4 * saves
)

// model is a small Llama shape.
var model = append([]string{
	"--num-layers", "4", "--hidden-size", "256", "--num-attention-heads", "4", "--seq-length", "256", "--max-position-embeddings", "256",
	"--position-embedding-type", "rope", "--swiglu", "--normalization", "RMSNorm", "--disable-bias-linear", "--bf16",
	"--micro-batch-size", "4", "--global-batch-size", "4",
	"--attention-dropout", "0", "--hidden-dropout", "0",
	"--optimizer", "adam", "--lr", "3e-3", "--min-lr", "3e-4", "--lr-decay-style", "cosine", "--lr-warmup-fraction", "0.05",
	"--weight-decay", "0.1", "--adam-beta2", "0.95", "--clip-grad", "1.0",
	"--data-path", dataPath, "--split", "949,50,1",
	"--log-interval", "1", "--eval-iters", "10",
}, tokenizerFlags...)

// flags are those of every run here.
func flags() []string { return append([]string{"--seed", strconv.Itoa(*seed)}, model...) }

// plan is a run's length, cut to this machine's speed.
type plan struct {
	steps, interval int // interval: between checkpoints and evaluations
}

func (p plan) args() []string {
	steps, every := strconv.Itoa(p.steps), strconv.Itoa(p.interval)
	return append(flags(), "--train-iters", steps, "--save", checkpoints, "--load", checkpoints,
		"--save-interval", every, "--eval-interval", every, "--log-jsonl", stepsFile)
}

// kept is the checkpoint that the resumed run starts from; lost is the one after
// it, which the killed run wrote and the resumed one must write again.
func (p plan) kept() int { return 5 * p.interval }
func (p plan) lost() int { return 6 * p.interval }

// dies is the step after which the process is killed.
func (p plan) dies() int { return p.lost() + p.interval/3 }

func trainAndKill() error {
	p, err := measureSpeed()
	if err != nil {
		return err
	}
	page, err := showPage()
	if err != nil {
		return err
	}
	defer page.Close()
	say("\nThe run, in the background; its own output goes to %s, and its page is at http://%s/ while it trains:", trainLog, page.Addr())
	printCommand("bin/pretrain_gpt", p.args())
	if err := runAndKill(p); err != nil {
		return err
	}
	from, err := loseNewest(p)
	if err != nil {
		return err
	}
	say("\nAgain, the same command with --ckpt-step %d, the checkpoint before:", p.kept())
	run, err := start(trainLog, "bin/pretrain_gpt", append(p.args(), "--ckpt-step", strconv.Itoa(p.kept()))...)
	if err != nil {
		return err
	}
	if err := follow(run, from, p.steps+1, p.steps); err != nil {
		return err
	}
	if err := <-run.ended; err != nil {
		return run.failure(err)
	}
	return compare(p, from)
}

// showPage serves the page of the run, before and after its kill.
func showPage() (*dashboard.Server, error) {
	run := []dashboard.Source{{Name: "quickstart", Path: stepsFile, Ongoing: true}}
	server, err := dashboard.Serve("127.0.0.1:8080", run, nil)
	if err != nil { // the port is taken
		server, err = dashboard.Serve("127.0.0.1:0", run, nil)
	}
	return server, fault.With(fault.IO, err)
}

// measureSpeed trains a few steps that are thrown away.
func measureSpeed() (plan, error) {
	trial := filepath.Join(folder, "trial", "steps.jsonl") // a folder of its own: report takes the only log of one
	if err := os.MkdirAll(filepath.Dir(trial), 0o777); err != nil {
		return plan{}, fault.With(fault.IO, err)
	}
	args := append(flags(), "--train-iters", strconv.Itoa(trySteps), "--eval-interval", "1000", "--log-jsonl", trial)
	run, err := start(filepath.Join(folder, "trial", "train.log"), "bin/pretrain_gpt", args...)
	if err != nil {
		return plan{}, err
	}
	if err := <-run.ended; err != nil {
		return plan{}, run.failure(err)
	}
	steps, err := readSteps(trial, 0)
	if err != nil {
		return plan{}, err
	}
	var seconds []float64
	for _, s := range steps {
		if s.Validation == "" {
			seconds = append(seconds, float64(s.Seconds))
		}
	}
	if len(seconds) < trySteps {
		return plan{}, fault.Errorf(fault.Internal, "%s holds %d steps of %d", trial, len(seconds), trySteps)
	}
	slices.Sort(seconds)
	usual := seconds[len(seconds)/2]
	fit := int(trainTime.Seconds() / usual)
	interval := max(fewestSteps, fit) / saves
	p := plan{steps: interval * saves, interval: interval}
	say("A trial of %d steps: %.0f ms a step, so %d steps fit into %.0f s.", trySteps, 1000*usual, p.steps, trainTime.Seconds())
	return p, nil
}

// runAndKill trains until a little after the checkpoint that will be lost.
func runAndKill(p plan) error {
	run, err := start(trainLog, "bin/pretrain_gpt", p.args()...)
	if err != nil {
		return err
	}
	if err := follow(run, 0, p.dies(), p.steps); err != nil {
		return err
	}
	if err := run.kill(); err != nil {
		return err
	}
	say("kill -9 %d", run.cmd.Process.Pid)
	return nil
}

// loseNewest sets the killed run's newest checkpoint aside with a copy of its steps, as
// though the kill had come before that checkpoint: so the resumed run must make it again,
// and both can be compared. from is where the resumed run's steps will begin.
func loseNewest(p plan) (from int64, err error) {
	aside := filepath.Join(setAside, "checkpoint")
	if err := os.MkdirAll(aside, 0o777); err != nil {
		return 0, fault.With(fault.IO, err)
	}
	name := iterFolder(p.lost())
	if err := os.Rename(filepath.Join(checkpoints, name), filepath.Join(aside, name)); err != nil {
		return 0, fault.Errorf(fault.Internal, "setting aside what the killed run wrote: %w", err)
	}
	steps, err := fault.ReadFile(stepsFile, 1<<30)
	if err != nil {
		return 0, fault.With(fault.IO, err)
	}
	steps = steps[:bytes.LastIndexByte(steps, '\n')+1] // the kill may have cut a line short
	for _, path := range []string{filepath.Join(setAside, filepath.Base(stepsFile)), stepsFile} {
		if err := whole.WriteFile(path, 0o666, steps); err != nil {
			return 0, err
		}
	}
	say("Its newest checkpoint, %d, is set aside, so that steps %d to %d must be trained again.", p.lost(), p.kept()+1, p.dies())
	return int64(len(steps)), nil
}

func iterFolder(step int) string { return fmt.Sprintf("iter_%07d", step) }

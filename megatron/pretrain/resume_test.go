package pretrain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"monotron/internal/exitcode"
)

// Claim (docs/checkpoints.md): a run stopped by a signal after any iteration,
// also twice, continues bit for bit: same losses, same weights, moments and all.
func TestStoppedRunContinuesBitForBit(t *testing.T) {
	for name, flags := range map[string]string{
		"f32":    "",
		"async":  "--async-save --keep-last 2",
		"bf16":   "--bf16 --optimizer sgd",
		"lion":   "--bf16 --optimizer lion",
		"codes":  "--bf16 --optimizer adamw_8bit --hidden-size 64 --decoupled-lr 0.1",
		"muon":   "--bf16 --optimizer muon --muon-nesterov --muon-scalar-optimizer lion",
		"lines":  "--optimizer adaptive_muon --adaptive-muon-moment2-method normuon",
		"free":   "--bf16 --optimizer schedule_free_adamw --lr-decay-style constant --lr-warmup-iters 2",
		"fp8":    "--bf16 --fp8-format hybrid --fp8-recipe blockwise --first-last-layers-bf16 --num-layers-at-end-in-bf16 0",
		"scales": "--bf16 --fp8-format hybrid --fp8-amax-history-len 3 --fp8-amax-compute-algo max --no-fp8-wgrad",
		"fp16":   "--fp16 --initial-loss-scale 65536 --loss-scale-window 2 --hysteresis 1",
		"ramp":   "--rampup-batch-size 2 2 6 --lr-decay-style cosine --lr-warmup-iters 2 --dataloader-type cyclic",
		"more":   "--decoupled-lr 0.1 --recompute-activations --calculate-per-token-loss --eval-micro-batch-size 1",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			base := tiny + someData + flags + " --save-interval 4 "
			full := numbers(must(t, dir, base+"--save DIR/whole").out)
			want := weights(t, filepath.Join(dir, "whole"))

			part := base + "--save DIR/part --load DIR/part"
			var got []string
			for _, stopAt := range []int{2, 5, 0} {
				ctx, cancel := context.WithCancelCause(context.Background())
				r := callUntil(t, ctx, dir, part, func(text string) {
					if stopAt > 0 && strings.Contains(text, fmt.Sprintf("iteration %8d/", stopAt)) {
						cancel(errors.New("a test"))
					}
				})
				cancel(nil)
				if code := r.code(); stopAt > 0 && code != exitcode.Again || stopAt == 0 && r.err != nil {
					t.Fatalf("stop at %d: code %d: %v", stopAt, code, r.err)
				}
				got = append(got, numbers(r.out)...)
			}
			if a, b := strings.Join(got, "\n"), strings.Join(full, "\n"); a != b {
				t.Errorf("in parts\n%s\nat once\n%s", a, b)
			}
			if have := weights(t, filepath.Join(dir, "part")); have != want {
				t.Errorf("weights %s, want %s", have, want)
			}
		})
	}
}

// Claim: with schedule_free_adamw a run evaluates the weights that it saves, which are the average and not those that it trains at: another
// program that reads them has the run's loss.
func TestEvaluatesTheAverage(t *testing.T) {
	dir := t.TempDir()
	base := tiny + someData + "--lr-decay-style constant "
	loss := func(out string) string {
		_, after, found := strings.Cut(out, "on test set | lm loss value: ")
		if !found {
			t.Fatalf("no loss of the test set:\n%s", out)
		}
		return strings.Fields(after)[0]
	}
	trained := loss(must(t, dir, base+"--optimizer schedule_free_adamw --save DIR/average").out)
	if read := loss(must(t, dir, base+"--load DIR/average --finetune --skip-train").out); read != trained {
		t.Errorf("the run's loss is %s, that of its weights %s", trained, read)
	}
	if adam := loss(must(t, dir, base+"--optimizer adam").out); adam == trained {
		t.Errorf("AdamW has the same loss, %s", adam)
	}
}

// Claim: a signal during an evaluation loses that evaluation and nothing else.
func TestStoppedEvaluation(t *testing.T) {
	dir := t.TempDir()
	base := tiny + someData + "--eval-interval 2 --eval-iters 3 --save-interval 6 "
	full := numbers(must(t, dir, base+"--save DIR/whole").out)
	ctx, cancel := context.WithCancelCause(context.Background())
	r := callUntil(t, ctx, dir, base+"--save DIR/part", func(text string) {
		if strings.Contains(text, fmt.Sprintf("iteration %8d/", 2)) {
			cancel(errors.New("a test")) // the evaluation at 2 comes next
		}
	})
	if r.code() != exitcode.Again || !strings.Contains(r.notes, "the evaluation at iteration 2 is incomplete") {
		t.Fatalf("%v\n%s", r.err, r.notes)
	}
	got := append(numbers(r.out), numbers(must(t, dir, base+"--load DIR/part").out)...)
	want := slices.DeleteFunc(full, func(line string) bool { return strings.Contains(line, "validation loss at iteration 2 |") })
	if a, b := strings.Join(got, "\n"), strings.Join(want, "\n"); a != b {
		t.Errorf("in parts\n%s\nat once\n%s", a, b)
	}
}

// Claim (docs/checkpoints.md): kill -9 at any moment loses at most the steps since
// the last save: nothing partial bears a final name, and the run that is started
// again ends with the losses and weights of an undisturbed one. MONOTRON_KILLS
// sets the number of kills (50 for the show), MONOTRON_SEED the moments.
func TestKilledRunContinuesBitForBit(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes")
	}
	kills, seed := number(t, "MONOTRON_KILLS", 6), number(t, "MONOTRON_SEED", 1)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	dir := t.TempDir()
	base := tiny + someData + "--train-iters 12 --save-interval 2 "
	began := time.Now()
	full := child(t, dir, base+"--save DIR/whole")
	if err := full.Run(); err != nil {
		t.Fatalf("%v\n%s", err, full.notes.String())
	}
	took := time.Since(began)
	want, wantLines := weights(t, filepath.Join(dir, "whole")), numbers(full.out.String())

	for life, done := 0, 0; done < kills; life++ {
		name := fmt.Sprintf("life%d", life)
		line := base + "--save DIR/" + name + " --load DIR/" + name + []string{"", " --keep-last 2", " --async-save"}[life%3]
		for {
			c := child(t, dir, line)
			after := time.Duration(random.Float64() * 1.1 * float64(took))
			if done >= kills {
				after = time.Hour
			}
			killed, err := c.killAfter(after, syscall.SIGKILL)
			soundFolder(t, filepath.Join(dir, name))
			if killed {
				done++
				continue
			}
			if err != nil {
				t.Fatalf("life %d after %d kills: %v\n%s", life, done, err, c.notes.String())
			}
			if got := weights(t, filepath.Join(dir, name)); got != want {
				t.Errorf("life %d: weights %s, want %s", life, got, want)
			}
			sameEnd(t, numbers(c.out.String()), wantLines)
			break
		}
	}
	t.Logf("%d kills", kills)
}

// Claim: SIGTERM, SIGINT and SIGHUP at any moment save and exit 75.
func TestSignalledRunContinuesBitForBit(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	random := rand.New(rand.NewPCG(uint64(number(t, "MONOTRON_SEED", 1)), 1))
	dir := t.TempDir()
	base := tiny + someData + "--train-iters 12 --save-interval 20 "
	began := time.Now()
	full := child(t, dir, base+"--save DIR/whole")
	if err := full.Run(); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	for i, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		line := fmt.Sprintf("%s--save DIR/part%d --load DIR/part%d", base, i, i)
		for {
			c := child(t, dir, line)
			signalled, err := c.killAfter(time.Duration(random.Float64()*float64(took)), s)
			if err == nil {
				sameEnd(t, numbers(c.out.String()), numbers(full.out.String()))
				break
			}
			var exit *exec.ExitError
			if !signalled || !errors.As(err, &exit) {
				t.Fatalf("%v\n%s", err, c.notes.String())
			}
			early := !exit.Exited() // before the handler was there: the signal itself ends the process
			if !early && exit.ExitCode() != int(exitcode.Again) {
				t.Fatalf("exit %d\n%s", exit.ExitCode(), c.notes.String())
			}
		}
		if got, want := weights(t, filepath.Join(dir, fmt.Sprintf("part%d", i))), weights(t, filepath.Join(dir, "whole")); got != want {
			t.Errorf("%v: weights %s, want %s", s, got, want)
		}
	}
}

// sameEnd compares what a resumed run printed with the end of an uninterrupted one.
func sameEnd(t *testing.T, got, full []string) {
	t.Helper()
	if len(got) > len(full) || !slices.Equal(got, full[len(full)-len(got):]) {
		t.Errorf("the last part\n%s\nis not the end of\n%s", strings.Join(got, "\n"), strings.Join(full, "\n"))
	}
}

func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s=%s: %v", variable, text, err)
	}
	return n
}

// program is pretrain_gpt in a process of its own.
type program struct {
	*exec.Cmd
	out, notes bytes.Buffer
}

func child(t *testing.T, dir, line string) *program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{Cmd: exec.Command(self, strings.Fields(strings.ReplaceAll(line, "DIR", dir))...)}
	p.Env = append(os.Environ(), asCommand+"=1")
	p.Stdout, p.Stderr = &p.out, &p.notes
	return p
}

// killAfter starts the process and sends it a signal, unless it ends before.
func (p *program) killAfter(after time.Duration, s syscall.Signal) (sent bool, err error) {
	if err := p.Start(); err != nil {
		return false, err
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Wait() }()
	select {
	case err := <-ended:
		return false, err
	case <-time.After(after):
	}
	if err := p.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return false, err
	}
	err = <-ended
	var exit *exec.ExitError
	return errors.As(err, &exit), err
}

// Claim (docs/checkpoints.md): --load takes one checkpoint of a save folder by
// its path, also after a move; it does not restart at step 0, nor take a neighbour of
// the same iteration. --save into one is refused.
func TestLoadOfOneCheckpoint(t *testing.T) {
	dir := t.TempDir()
	base := tiny + someData + "--save-interval 2 "
	full := numbers(must(t, dir, base+"--save DIR/whole").out)
	must(t, dir, base+"--seed 3 --save DIR/other --exit-interval 2")
	best := filepath.Join(dir, "other", "best")
	if err := os.CopyFS(best, os.DirFS(filepath.Join(dir, "whole", "iter_0000002"))); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"DIR/whole/iter_0000002", "DIR/whole/iter_0000002/", "DIR/other/best"} {
		r := must(t, dir, base+"--use-checkpoint-args --load "+from)
		if a, b := strings.Join(numbers(r.out), "\n"), strings.Join(full[2:], "\n"); a != b {
			t.Errorf("%s: after iteration 2\n%s\nat once\n%s\n%s", from, a, b, r.notes)
		}
	}
	if r := call(t, dir, base+"--save DIR/other/best"); r.code() != exitcode.Usage || !strings.Contains(r.err.Error(), "is a single checkpoint") {
		t.Errorf("--save into a checkpoint: %v", r.err)
	}
}

// Claim (docs/checkpoints.md): a save folder may hold several formats, as one
// whose run changed --ckpt-format does: each iteration is loaded as what it is,
// with the flags it was trained with, and nobody removes another program's.
func TestMixedFormatsInOneFolder(t *testing.T) {
	dir := t.TempDir()
	base := tiny + someData + "--save-interval 2 "
	full := numbers(must(t, dir, base+"--save DIR/whole").out)
	mixed := base + "--save DIR/mixed --load DIR/mixed "
	must(t, dir, mixed+"--exit-interval 2")
	must(t, dir, mixed+"--exit-interval 4 --ckpt-format torch")
	left := filepath.Join(dir, "mixed", ".tmp-iter_0000009-1-killed")
	if err := os.Mkdir(left, 0o777); err != nil {
		t.Fatal(err)
	}
	must(t, dir, mixed+"--ckpt-format torch_dist")
	if _, err := os.Stat(left); err == nil {
		t.Error("what a killed save left is there still")
	}
	for _, step := range []int{2, 4} {
		r := must(t, dir, base+fmt.Sprintf("--use-checkpoint-args --load DIR/mixed --ckpt-step %d", step))
		if a, b := strings.Join(numbers(r.out), "\n"), strings.Join(full, "\n"); !strings.HasSuffix(b, a) || !strings.Contains(numbers(r.out)[0], fmt.Sprintf("iteration %8d/", step+1)) {
			t.Errorf("after iteration %d\n%s\nat once\n%s\n%s", step, a, b, r.notes)
		}
	}
	must(t, dir, base+"--load DIR/mixed --ckpt-step 2 --save DIR/mixed --keep-last 1 --save-interval 3")
	for _, name := range []string{"iter_0000004/mp_rank_00/model_optim_rng.pt", "iter_0000006/manifest.json"} {
		if _, err := os.Stat(filepath.Join(dir, "mixed", name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "mixed", "iter_0000002")); err == nil {
		t.Error("iteration 2 is kept with --keep-last 1")
	}
}

// Claim: what a resumed run sets otherwise than its checkpoint is named by flags, as users know it.
func TestOverriddenSettingsAreFlags(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, tiny+someData+"--train-iters 2 --eval-iters 2 --save DIR/saved")
	r := must(t, dir, tiny+someData+"--train-iters 4 --eval-iters 1 --load DIR/saved --override-opt-param-scheduler")
	if !strings.Contains(r.notes, "--eval-iters 2 -> 1") || strings.Contains(r.notes, "EvalIters") {
		t.Error(r.notes)
	}
}

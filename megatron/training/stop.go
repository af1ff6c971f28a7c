package training

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/mpu/comm"
)

// reason is why a run stops before its last iteration.
type reason struct {
	text  string
	code  exitcode.Code
	final bool // the training is at its end, and the last evaluations follow
}

// err is nil where stopping was asked for as a normal end.
func (s *reason) err() error {
	if s.code == exitcode.Done {
		return nil
	}
	return fmt.Errorf("%s", s.text)
}

// reasonToStop is the same on every rank: a signal, or the end of a time, that one
// of them has seen.
func (r *Run) reasonToStop(ctx context.Context) (*reason, error) {
	it, c := r.Engine.Iteration, &r.Config
	kept := r.kept()
	seen, err := r.agreed(ctx)
	switch {
	case err != nil:
		return nil, err
	case seen == signalled:
		return &reason{fmt.Sprintf("stopped after iteration %d by %s%s", it, r.cause(ctx), kept), exitcode.Again, false}, nil
	case seen == timeIsUp:
		return &reason{fmt.Sprintf("stopped after iteration %d: --exit-duration-in-mins %d has passed%s", it, c.ExitDurationMins, kept), exitcode.Again, false}, nil
	case seen == trained:
		return &reason{fmt.Sprintf("training ends at iteration %d: --train-seconds %d have passed", it, c.TrainSeconds), exitcode.Done, true}, nil
	case r.exhausted():
		return &reason{fmt.Sprintf("training ends at iteration %d: %d evaluations had no loss below that of iteration %d (--early-stopping-patience)", it, r.best.Worse, r.best.Iteration), exitcode.Done, true}, nil
	case due(it, c.ExitInterval):
		return &reason{fmt.Sprintf("exiting at iteration %d, as --exit-interval requests", it), exitcode.Done, false}, nil
	}
	return nil, nil
}

// kept says what becomes of a run that stops.
func (r *Run) kept() string {
	c := &r.Config.Checkpoint
	switch {
	case c.Save == "":
		return "; nothing is saved because --save is not given"
	case c.Resume || filepath.Clean(c.Load) == filepath.Clean(c.Save) && !c.Finetune:
		return "; the checkpoint of this iteration is saved; run the same command again to continue"
	}
	text := "; the checkpoint of this iteration is saved; run the same command with --load " + cmp.Or(c.Remote, c.Save)
	if c.Finetune {
		text += " and without --finetune"
	}
	return text + " to continue"
}

// What a rank may have seen that all must act on; the highest counts, also where the ranks'
// are added up.
const (
	nothing   int64 = 0
	timeIsUp  int64 = 1
	trained   int64 = 1 << 20 // more than there are ranks
	signalled int64 = 1 << 41 // more than all of them add up to
)

// seen is what this rank has seen.
func (r *Run) seen(ctx context.Context) int64 {
	minutes := r.Config.ExitDurationMins
	switch {
	case ctx.Err() != nil || r.killed():
		return signalled
	case minutes > 0 && time.Since(r.started) > time.Duration(minutes)*time.Minute:
		return timeIsUp
	case r.Config.TrainSeconds > 0 && r.trained >= time.Duration(r.Config.TrainSeconds)*time.Second:
		return trained
	}
	return nothing
}

// agreed is the highest of the ranks' reasons: as they voted with the step's sums,
// which costs no wait of its own, or, without a step or long after one, now.
func (r *Run) agreed(ctx context.Context) (int64, error) {
	voted := r.voted
	r.voted = nil
	switch {
	case voted == nil || r.rank.World().Size() == 1:
		return r.agree(r.seen(ctx))
	case *voted >= float64(signalled):
		return signalled, nil
	case *voted >= float64(trained):
		return trained, nil
	case *voted > 0:
		return timeIsUp, nil
	}
	return nothing, nil
}

// agree is the highest of the ranks' values of seen.
func (r *Run) agree(seen int64) (int64, error) {
	if r.rank.World().Size() == 1 {
		return seen, nil
	}
	device.WriteSlice(r.device, r.votes, []int64{seen})
	if err := r.rank.World().AllReduce(r.votes, comm.Max).Wait(); err != nil {
		return 0, err
	}
	return device.ReadSlice[int64](r.device, r.votes)[0], nil
}

// cause names what cancelled ctx, --kill-switch-path, or another rank's cause.
func (r *Run) cause(ctx context.Context) string {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx).Error()
	case r.Config.KillSwitch != "" && exists(r.Config.KillSwitch):
		return "--kill-switch-path: " + r.Config.KillSwitch + " exists"
	}
	return "a signal to another rank"
}

// killSwitchEvery is how often --kill-switch-path is checked: its folder may be a slow one.
const killSwitchEvery = time.Second

// killed reports whether the file of --kill-switch-path is there.
func (r *Run) killed() bool {
	path := r.Config.KillSwitch
	if path == "" || time.Since(r.killChecked) < killSwitchEvery {
		return false
	}
	r.killChecked = time.Now()
	return exists(path)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

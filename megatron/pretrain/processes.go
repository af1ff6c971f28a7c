package pretrain

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/training"
	"monotron/mpu/bootstrap/launchenv"
	"monotron/mpu/bootstrap/preflight"
	"monotron/mpu/comm"
	"monotron/mpu/comm/process"
	"monotron/mpu/ranks"
	"monotron/mpu/topology"
)

// share fits a run's settings to one process of several: each has its part of the
// host's cores, its own profile, and only the last draws a progress bar.
func share(env *launchenv.Env, c *config.Run, w *training.Streams) {
	if c.CPUThreads == 0 {
		c.CPUThreads = max(1, device.Cores()/env.LocalSize)
	}
	if c.Log.Profile != "" && env.Rank > 0 {
		ext := filepath.Ext(c.Log.Profile)
		c.Log.Profile = fmt.Sprintf("%s.rank%05d%s", strings.TrimSuffix(c.Log.Profile, ext), env.Rank, ext)
	}
	if env.Rank != env.Size-1 {
		w.Screen = nil
	}
}

// meet waits for the other processes of the run.
func meet(ctx context.Context, env *launchenv.Env, c *config.Run, notes *logging.Notes) (*process.World, error) {
	alike, err := facts(c)
	if err != nil {
		return nil, err
	}
	ctx, stop := patient(ctx)
	defer stop()
	limit := time.Duration(c.Layout.TimeoutMinutes) * time.Minute
	return preflight.Meet(ctx, env, alike, limit, notes.From("rendezvous").Rank(env.Rank).Lines())
}

// patient is ctx cancelled 10 seconds late: a rank that is asked to stop while the
// others are about to come joins them, so that all can agree to stop.
func patient(ctx context.Context) (context.Context, func()) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		time.Sleep(10 * time.Second)
		cancel(context.Cause(ctx))
	})
	return late, func() { stop(); cancel(nil) }
}

// facts are what all processes of a run must have alike.
func facts(c *config.Run) (map[string]string, error) {
	settings, err := json.Marshal([]any{c.Flags, c.Layout, c.Precision, c.Seed})
	if err != nil {
		return nil, exitcode.With(exitcode.Internal, err)
	}
	return map[string]string{"settings (flags)": fmt.Sprintf("%016x", xxh3.Hash(settings))}, nil
}

// check checks the run before its first step; rank 0 reports what it found.
func check(p *process.World, r *ranks.Rank, fast bool, notes io.Writer) error {
	if fast {
		if err := p.FastReduce(); err != nil {
			return exitcode.Errorf(exitcode.Usage, "--fast-reduce: %w", err)
		}
	}
	groups := []*comm.Group{r.Groups[topology.TP], r.Groups[topology.PP], r.Groups[engine.DataKind(r.Sizes)]}
	if r.Sizes.CP > 1 {
		groups = append(groups, r.Groups[topology.CP])
	}
	report, err := preflight.Run(p, r.Device, r.World(), groups, preflight.Size(r.Device))
	if err != nil || r.Number > 0 {
		return err
	}
	return report.Write(notes)
}

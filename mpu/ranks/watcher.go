package ranks

import (
	"time"

	"monotron/internal/exitcode"
	"monotron/mpu/comm/failure"
	"monotron/mpu/health"
)

// runWatched runs all ranks here, and their watcher.
func runWatched(c Config, work func(*Rank) error) error {
	n := c.Sizes.World()
	if err := c.Watch.fresh(); err != nil {
		return err
	}
	recorders, err := c.Watch.recorders(n)
	if err != nil {
		return err
	}
	g := newGoroutines(c, work)
	g.recorders = recorders
	lost := make(chan *failure.Verdict, 1)
	var beaters []*health.Beater
	watcher := health.NewWatcher(n, c.Watch.Settings, func(rank int) { beaters[rank].Answer() }, func(v *failure.Verdict) {
		g.main.Abort(v.Err())
		g.saves.Abort(v.Err())
		lost <- v
	})
	defer watcher.Close()
	for _, r := range recorders {
		beaters = append(beaters, health.Straight(r, watcher))
	}
	g.ends = func(rank int, err error) { beaters[rank].Close(err) }
	err, left := await(g.run, lost, unwinding)
	if left {
		return c.Watch.conclude(watcher, err)
	}
	if err == nil { // a rank alone has no peers that tell it
		err = watcher.Judged()
	}
	closeRecorders(recorders)
	return c.Watch.conclude(watcher, err)
}

// await is the end of run. left: the run is lost, and its ranks have not noticed for as
// long as they may take; then the error is the verdict.
func await(run func() error, lost <-chan *failure.Verdict, patience time.Duration) (err error, left bool) {
	over := make(chan error, 1)
	go func() { over <- run() }()
	select {
	case err := <-over:
		return err, false
	case v := <-lost:
		select {
		case err := <-over:
			return err, false
		case <-time.After(patience):
			return v.Err(), true
		}
	}
}

// fresh makes the run's folder, where one is asked for.
func (w *Watch) fresh() error {
	if w.Folder == "" {
		return nil
	}
	return health.Fresh(w.Folder)
}

// recorders are those of n ranks here.
func (w *Watch) recorders(n int) (all []*health.Recorder, err error) {
	for rank := range n {
		r, err := health.NewRecorder(rank, n, w.Folder)
		if err != nil {
			closeRecorders(all)
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

func closeRecorders(all []*health.Recorder) {
	for _, r := range all {
		_ = r.Close() // the file is complete without it
	}
}

// conclude makes the verdict of a run that has ended with an error, and keeps it.
func (w *Watch) conclude(watcher *health.Watcher, err error) error {
	if err == nil || exitcode.CodeOf(err) == exitcode.Again {
		return err
	}
	v := watcher.Verdict(err)
	if w.Folder != "" {
		if failed := v.Write(w.Folder); failed != nil {
			w.Note("%v", failed)
		}
	}
	if v.Text == err.Error() {
		return err
	}
	return v.Err()
}

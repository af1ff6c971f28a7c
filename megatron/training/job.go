package training

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"monotron/csrc/device"
	"monotron/dataset"
	"monotron/internal/exitcode"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/optimizer"
	"monotron/megatron/telemetry"
	"monotron/mpu/comm/process"
	"monotron/mpu/health"
	"monotron/mpu/health/inject"
	"monotron/mpu/ranks"
	"monotron/tokenizer"
)

// Job is what the ranks of a process share: the settings, complete with the
// vocabulary, the tokenizer and the data.
type Job struct {
	Config    config.Run
	Tokenizer tokenizer.Tokenizer
	Outcome   *Outcome        // nil: nobody asks
	Planned   map[int]Planned // of ranks of this process; nil: nobody planned
	Asked     Asked

	Segments []*os.File // in which this process's rank keeps memory checkpoints; nil: nobody holds any
	Restarts int        // of the run before this start
	Hosts    bool       // the ranks are on several

	MemoryFree int64 // bytes that a rank may take, as the run begins; 0: not known

	iters    int64 // to train in all
	schedule optimizer.Schedule
	console  *console
	trace    *telemetry.Trace // nil: none
	faults   []inject.Fault

	locked *os.File // --save's folder, kept from other runs; nil: none
	peak   *peak    // of this process, for MFU; nil: not measured

	open sync.Once // by the first rank that wants data
	sets [3]dataset.Dataset
	err  error
}

// Planned are the bytes that a rank was planned to hold.
type Planned struct {
	Most      int64                  // at once
	ByPurpose [device.Purposes]int64 // most of each, whenever
}

// Prepare checks what needs no model: tokenizer, batch sizes, schedule. Checkpoints to load from
// s3:// URLs are fetched; no folder of the run is made yet.
func Prepare(c config.Run, w Streams) (*Job, error) {
	// A condition that ends a start at once; then checkpoints in remote storage.
	if c.KillSwitch != "" && exists(c.KillSwitch) {
		return nil, exitcode.Errorf(exitcode.Again, "--kill-switch-path: %s exists, so the run does not start; remove the file first", c.KillSwitch)
	}
	if err := stageObjects(&c.Checkpoint, func(text string) { w.Notes.From("checkpoint").Info("%s", text) }); err != nil {
		return nil, err
	}
	resumeSaved(&c.Checkpoint)
	j := &Job{Config: c}
	var err error
	// The tokenizer sizes the vocabulary, the files of --load may change the model.
	if j.Tokenizer, err = tokenizer.FromConfig(c.Tokenizer); err != nil {
		return nil, err
	}
	if err = j.Config.SetVocab(j.Tokenizer.VocabSize()); err != nil {
		return nil, err
	}
	if err = Adapt(&j.Config); err != nil {
		return nil, err
	}
	// Iterations, rates, injected faults.
	iters, err := j.Config.Iterations()
	if err != nil {
		return nil, err
	}
	j.iters = int64(iters)
	if j.schedule, err = rateSchedule(&j.Config); err != nil {
		return nil, err
	}
	if j.faults, err = inject.Parse(c.Watch.Inject); err != nil {
		return nil, err
	}
	for _, f := range j.faults {
		if world := j.Config.Layout.Sizes().World(); f.Rank >= world && !c.Watch.FewerRanks {
			return nil, exitcode.Errorf(exitcode.Usage, "--inject %s:rank=%d: the ranks of this run are 0 to %d", f.Kind, f.Rank, world-1)
		}
	}
	if err = checkJump(&j.Config, w.Notes); err != nil {
		return nil, err
	}
	j.console = newConsole(w, j.iters)
	return j, nil
}

// OpenFiles makes what would fail later, when work is lost: the folders of --save and --save-on-load, the
// trace. A run that is refused before leaves none of them behind.
func (j *Job) OpenFiles() (err error) {
	c := &j.Config
	if err := errors.Join(probe("--save", c.Checkpoint.Save), probe("--save-on-load", c.Checkpoint.SaveOnLoad)); err != nil {
		return err
	}
	if st, err := os.Stat(c.Log.Profile); err == nil && st.IsDir() {
		return exitcode.Errorf(exitcode.IO, "--profile %s is a folder; name a file", c.Log.Profile)
	}
	if c.Log.Profile != "" {
		if dir := filepath.Dir(c.Log.Profile); c.Log.JSONL != "" && dir == filepath.Dir(c.Log.JSONL) { // which is made for the log
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return exitcode.Errorf(exitcode.IO, "--log-jsonl: %w", err)
			}
		}
		j.trace, err = telemetry.NewTrace(c.Log.Profile, c.Layout.Sizes().World())
	}
	return err
}

// Close ends what the ranks wrote to together.
func (j *Job) Close() error {
	j.console.close()
	if j.locked != nil {
		_ = j.locked.Close() // opened to be read, nothing is lost
	}
	if err := j.trace.Close(); err != nil { // what was trained does not depend on it
		j.console.Notes.Warn("%v", err)
	} else if j.trace != nil {
		j.console.note("the trace is in %s; open it with chrome://tracing or ui.perfetto.dev", j.Config.Log.Profile)
	}
	return nil
}

// data opens the datasets, once for all ranks of the process. Notices about them
// go to the rank that comes first, which calls waiting while another process builds them.
func (j *Job) data(notice func(string), waiting func()) ([3]dataset.Dataset, error) {
	j.open.Do(func() {
		c := j.Config
		c.Data.Notice, c.Data.Waiting = notice, waiting
		j.sets, j.err = openData(&c, j.Tokenizer, int(j.iters))
	})
	return j.sets, j.err
}

// Ranks does work on this process's ranks: all of the layout's, or, with a process,
// the one that it is. They are watched; the error is the run's verdict.
func (j *Job) Ranks(p *process.World, open func() (*device.Device, error), work func(*ranks.Rank) error) error {
	c := engine.Ranks(&j.Config.Step, open)
	c.Process, c.Watch = p, j.watching()
	return ranks.Run(c, work)
}

// watching is how the ranks are watched.
func (j *Job) watching() *ranks.Watch {
	c := &j.Config.Watch
	w := &ranks.Watch{Folder: c.Folder, Faults: j.faults, Note: j.console.note,
		Settings: health.Settings{Limit: time.Duration(c.StallSeconds) * time.Second, Every: int64(max(1, j.Config.Log.Interval))}}
	w.Factor, w.Learnt = c.TimeoutFactor, func(line string) { j.console.note("%s", line) }
	if c.Stragglers {
		w.Remark = func(line string) { j.console.note("%s", line) }
	}
	return w
}

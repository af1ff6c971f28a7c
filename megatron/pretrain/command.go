package pretrain

import (
	"context"
	"errors"
	"os"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/internal/store"
	"monotron/megatron/arguments"
	"monotron/megatron/arguments/table"
	"monotron/megatron/config"
	"monotron/megatron/training"
	"monotron/mpu/bootstrap/launchenv"
	"monotron/mpu/ranks"
)

// Command is pretrain_gpt; open makes a device by its --device name.
func Command(open func(name string) (*device.Device, error)) *cli.Command {
	return &cli.Command{
		Name:            "pretrain_gpt",
		Usage:           "train a GPT model with Megatron-LM's flags",
		Flags:           shownFlags(),
		SkipFlagParsing: true, // Megatron's rules, in arguments
		BashComplete:    complete,
		Action: func(c *cli.Context) error {
			return Run(c.Context, c.Args().Slice(), open)
		},
	}
}

// Run is the command for arguments, on the process's own streams.
func Run(ctx context.Context, args []string, open func(name string) (*device.Device, error)) error {
	return run(ctx, args, open, training.Streams{Out: os.Stdout, Notes: logging.Stderr(), Screen: os.Stderr})
}

// shownFlags is the flags that work, for completion and the manual page.
func shownFlags() (shown []cli.Flag) {
	for _, f := range table.All() {
		switch {
		case f.Class != table.Works || f.NotYet || f.Name == "help": // urfave/cli adds help itself
		case f.Kind == table.Switch:
			flag := &cli.BoolFlag{Name: f.Name, Aliases: f.Aliases, Usage: f.Help}
			shown = append(shown, shownSwitch{flag, flag.Names()})
		default:
			flag := &cli.StringFlag{Name: f.Name, Aliases: f.Aliases, Usage: f.Help, DefaultText: f.Default}
			shown = append(shown, shownValue{flag, flag.Names()})
		}
	}
	return shown
}

// shownSwitch and shownValue are flags that know their names. Before an action urfave/cli compares the names
// of all pairs of flags, and without these types it would find each name by a regular expression each time:
// 50 ms of processor time at every start.
type (
	shownSwitch struct {
		*cli.BoolFlag
		names []string
	}
	shownValue struct {
		*cli.StringFlag
		names []string
	}
)

func (f shownSwitch) Names() []string { return f.names }

func (f shownValue) Names() []string { return f.names }

// run is the command: Megatron's lines go to w.Out, everything else to w.Notes.
func run(ctx context.Context, args []string, open func(string) (*device.Device, error), w training.Streams) (err error) {
	// Launcher and signals first, so that a bad command line ends like any other run.
	outcome := training.NewOutcome()
	env, err := launchenv.Find(os.Getenv)
	if err != nil {
		return err
	}
	begun := newBegun(env)
	ctx, stop := stopOnSignal(ctx, w.Notes, begun, os.Exit)
	defer stop()
	options := arguments.Options{Layouts: true, Experts: true, CheckpointValues: training.CheckpointFlags, PresetValues: training.PresetFlags}
	if env != nil && env.Size > 1 {
		options.Ranks = env.Size
	}
	// The command line; a result file is written by the last rank, whatever happens.
	config, report, err := arguments.ParseWith(options, args)
	if !report.Help && !report.PrintConfig && (env == nil || env.Rank == env.Size-1) {
		if wrong := outcome.Begin(config.Log.Result); wrong != nil {
			return errors.Join(err, wrong)
		}
		defer func() { err = outcome.Write(config.Log.Result, err) }()
	}
	// A command line that is refused has the format it asks for.
	if wrong := w.Notes.Choose(config.Log.Format, config.Log.Level); err == nil {
		err = exitcode.With(exitcode.Usage, wrong)
	}
	if !report.Help && !report.PrintConfig && (err == nil || exitcode.CodeOf(err) == exitcode.Usage) {
		if missing := training.MissingInputs(&config); err != nil || len(missing) > 1 { // one alone is reported by what opens it
			err = arguments.Together(err, missing)
		}
	}
	if err != nil {
		return err
	}
	switch {
	// Commands that print and end.
	case report.HelpAll:
		return arguments.WriteAllHelp(w.Out)
	case report.Help:
		return arguments.WriteHelp(w.Out)
	case report.PrintConfig:
		return report.WriteConfig(w.Out)
	}
	if env == nil && !report.Given("world-size") {
		if err := launchenv.Unsure(os.Getenv); err != nil {
			return err
		}
	}
	// Standard output, the part of the run that this process has, notices of rank 0 only.
	ctx, w.Out = endWithReader(ctx, w)
	if options.Ranks > 1 {
		share(env, &config, &w)
	} else {
		env = nil
	}
	if env == nil || env.Rank == 0 {
		for _, n := range report.Notices {
			w.Notes.From("arguments").Info("%s", n)
		}
	}
	// What the launcher decided.
	if config.Watch.Folder == "" {
		config.Watch.Folder = os.Getenv(launchenv.RunFolder)
	}
	config.Watch.FewerRanks = os.Getenv(launchenv.FewerRanks) != ""
	if config.CPUThreads > 0 {
		device.SetThreads(config.CPUThreads)
	}
	asked := training.Asked{Command: append([]string{"pretrain_gpt"}, args...), Flags: report.Changed(), NameOf: table.NameOf}
	return train(ctx, config, asked, env, open, w, begun, outcome)
}

// train runs every rank of this process; env is not nil where that is one of a
// launcher's.
func train(ctx context.Context, config config.Run, asked training.Asked, env *launchenv.Env, open func(string) (*device.Device, error), w training.Streams, begun *begun, outcome *training.Outcome) (err error) {
	if c := &config.Checkpoint; env != nil && env.Hosts() && store.IsURL(c.Save) && c.LocalDir == "" {
		return exitcode.Errorf(exitcode.Usage, "--save %s: the ranks of all hosts write a checkpoint to one folder before it is uploaded; give --save-local-dir, a folder that all hosts share", c.Save)
	}
	// How many ranks this process must have set up before a signal can wait for a checkpoint.
	begun.ranks = 1
	if env == nil {
		begun.ranks = int64(config.Layout.Sizes().World())
	}
	// The job: checked, planned, its files opened, before any rank starts.
	job, err := training.Prepare(config, w)
	if err != nil {
		return err
	}
	job.Outcome, job.Asked = outcome, asked
	if err := holdMemory(job, env); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, job.Close()) }()
	device := func() (*device.Device, error) { return open(config.Device) }
	if config.Log.Extras {
		if err := afford(job, 0, func() error { return job.MeasurePeak(device) }); err != nil {
			return err
		}
	}
	if err := checkMemory(job, env, device, w.Notes.From("plan")); err != nil {
		return err
	}
	if err := job.OpenFiles(); err != nil {
		return err
	}
	// One process with all ranks, or one of a launcher's.
	work := func(rank *ranks.Rank) error { return trainRank(ctx, job, rank, begun) }
	if env == nil {
		return job.Ranks(nil, device, work)
	}
	process, err := meet(ctx, env, &config, w.Notes)
	if err != nil {
		return err
	}
	// Ranks in several processes check each other's hosts before they train.
	checked := func(rank *ranks.Rank) error {
		err := afford(job, rank.Number, func() error {
			return check(process, rank, config.Layout.FastReduce, w.Notes.From("preflight").Rank(rank.Number).Lines())
		})
		if err != nil {
			return err
		}
		return work(rank)
	}
	return job.Ranks(process, device, checked)
}

// trainRank trains.
func trainRank(ctx context.Context, job *training.Job, rank *ranks.Rank, begun *begun) error {
	return afford(job, rank.Number, func() error {
		r, err := job.Start(rank)
		if err != nil {
			return err
		}
		begun.one()
		return r.Train(ctx)
	})
}

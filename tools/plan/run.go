package plan

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/megatron/arguments"
	"monotron/megatron/config"
	"monotron/megatron/plan"
	"monotron/megatron/spec"
	"monotron/megatron/training"
	"monotron/tokenizer"
	"monotron/tools/internal/command"
	"monotron/tools/plan/timeline"
)

func runCommand(open func(name string) (*device.Device, error)) *cli.Command {
	return command.WrapOpen(&cli.Command{
		Name:      "run",
		Usage:     "compute the memory of every rank of a training run",
		ArgsUsage: "pretrain_gpt FLAGS...",
		Description: "FLAGS are those of the training command, with --world-size for the number of ranks; those for the data, the length of the training and the learning rate may be left out. The command executes setup and steps of one rank of each " +
			"kind as a dry run, without storage for tensors, and counts the bytes that the real run would allocate. Neither data nor weights are read.",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "machine", Usage: "plan for the machine of this file, or for one of " + strings.Join(plan.Machines(), ", ") + "; this also predicts the seconds per step and whether the run fits"},
			command.Between(0, 10, &cli.Float64Flag{Name: "jitter", Usage: "assume that the slowest device is slower than the others by this fraction"}),
			command.Between(0, 1e6, &cli.Float64Flag{Name: "price", Usage: "set the price of a device per hour, to compute the cost of the training"}),
			&cli.StringFlag{Name: "svg", Usage: "with --machine: write the timeline of a step to this file as a picture"},
			&cli.StringFlag{Name: "trace", Usage: "with --machine: write the timeline of a step to this file for chrome://tracing and Perfetto"},
			&cli.BoolFlag{Name: "timeline", Usage: "with --machine: print the timeline of a step as text"},
			&cli.BoolFlag{Name: "experts-at-most", Usage: "count each rank as if every token chose the experts of that rank, which is the worst case (default: tokens choose experts evenly)"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object, with every rank"},
		}, goodputFlags),
		Action: func(c *cli.Context) error { return planRun(c, open) },
	})
}

func planRun(c *cli.Context, open func(name string) (*device.Device, error)) error {
	m, err := machineOf(c)
	if err != nil {
		return err
	}
	p, err := newRunPlan(c.Args().Slice(), m, open)
	if err != nil {
		return err
	}
	defer p.close()
	if p.options.Most = c.Bool("experts-at-most"); p.options.Most && p.config.Model.Experts == nil {
		return exitcode.Errorf(exitcode.Usage, "--experts-at-most needs --num-experts; give both, or leave --experts-at-most out")
	}
	// A dry run of every rank that differs, then seconds and timeline by the machine file.
	if p.ranks, err = plan.Memory(p.config, p.options); err != nil {
		return err
	}
	if err := p.time(c); err != nil {
		return err
	}
	if err := p.draw(c); err != nil {
		return err
	}
	// One object or a text; the exit code says whether it fits.
	out := &command.Printer{W: c.App.Writer}
	switch {
	case c.Bool("json"):
		err = exitcode.With(exitcode.IO, json.NewEncoder(c.App.Writer).Encode(p.report()))
		out.W = io.Discard // the verdict is its field "fits"
	default:
		err = p.write(out)
	}
	if err != nil {
		return err
	}
	if c.Bool("timeline") {
		out.Printf("\n%s", p.chart.Text(100))
	}
	if p.machine != nil {
		return p.verdict(out)
	}
	return out.Err
}

// runPlan is a training run on paper.
type runPlan struct {
	config  config.Run
	options plan.Options
	machine *plan.Machine // nil: the one that it is planned on, of which no speeds are known
	ranks   []plan.Rank
	seconds *plan.Seconds // nil: no machine
	extras  plan.Extras
	chart   *timeline.Chart // nil: nobody wants a timeline
	price   float64
	assumed string   // flags that the command line lacked, and a plan depends on
	goodput *goodput // nil: nobody says how often a device fails
}

// machineOf is that of --machine; nil: none.
func machineOf(c *cli.Context) (*plan.Machine, error) {
	if c.String("machine") == "" {
		for _, name := range []string{"jitter", "price", "svg", "trace", "timeline", "device-mtbf", "restart-seconds", "save-seconds", "spare-nodes", "repair-hours"} {
			if c.IsSet(name) {
				return nil, exitcode.Errorf(exitcode.Usage, "--%s needs --machine, which gives the speed of the devices; give both", name)
			}
		}
		return nil, nil
	}
	return plan.ReadMachine(c.String("machine"))
}

// time is the step's seconds on the machine.
func (p *runPlan) time(c *cli.Context) error {
	if p.machine == nil {
		return nil
	}
	clock, err := plan.NewClock(p.config, p.machine)
	if err != nil {
		return err
	}
	// The step, what runs in addition, what failures cost.
	by := p.machine.ConstantsOf("")
	by.Compute, by.Move = by.Compute*(1+c.Float64("jitter")), by.Move*(1+c.Float64("jitter"))
	if p.seconds, err = clock.Run(by); err != nil {
		return err
	}
	if p.extras, err = clock.Extras(by); err != nil {
		return err
	}
	if p.goodput, err = p.failing(c); err != nil {
		return err
	}
	if p.price = c.Float64("price"); c.String("svg") == "" && c.String("trace") == "" && !c.Bool("timeline") {
		return nil
	}
	// A picture needs every pass of every stage.
	parts, err := p.config.Split().Parts()
	if err != nil {
		return err
	}
	s := p.config.PipelineSchedule(p.config.GlobalBatchSize/max(1, p.config.MicroBatchSize*p.config.Layout.Sizes().DP), false)
	if n := float64(s.Stages) * float64(s.Chunks) * float64(s.Micros); n > most {
		return exitcode.Errorf(exitcode.Usage, "the schedule has %.0f forward passes, but at most %d can be drawn; lower --global-batch-size for the picture", n, most)
	}
	line, err := clock.Timeline(by)
	p.chart = &timeline.Chart{Line: line, Parts: parts}
	return err
}

// draw writes the timeline's files.
func (p *runPlan) draw(c *cli.Context) error {
	for _, f := range []struct {
		flag string
		make func() []byte
	}{{"svg", func() []byte { return p.chart.SVG() }},
		{"trace", func() []byte {
			return p.chart.Trace([]timeline.After{{Name: "gradients", Seconds: p.seconds.Gradients}, {Name: "update", Seconds: p.seconds.Update}})
		}}} {
		if path := c.String(f.flag); path != "" {
			if err := atomicfile.WriteFile(path, 0o666, f.make()); err != nil {
				return err
			}
		}
	}
	return nil
}

// fits reports whether every rank has the memory.
func (p *runPlan) fits() bool {
	return p.machine == nil || p.machine.Has(p.ranks) && p.machine.HostHas(&p.config, p.ranks)
}

// machine may be nil.
func newRunPlan(args []string, machine *plan.Machine, open func(name string) (*device.Device, error)) (*runPlan, error) {
	if len(args) > 0 && args[0] == "pretrain_gpt" {
		args = args[1:]
	} else if len(args) == 0 || !strings.HasPrefix(args[0], "-") {
		return nil, exitcode.Errorf(exitcode.Usage, "the training command is missing; give it as plan run pretrain_gpt FLAGS...")
	}
	args = folders(args)
	known := &shapes{}
	args, assumed := completed(known.options(), args)
	config, report, err := arguments.ParseWith(known.options(), args)
	if err != nil {
		return nil, err
	}
	if report.Help {
		return nil, exitcode.Errorf(exitcode.Usage, "plan run cannot plan --help; for the flags of pretrain_gpt, run `pretrain_gpt --help` without plan run")
	}
	if err := known.setVocab(&config, report); err != nil {
		return nil, err
	}
	p := &runPlan{config: config, machine: machine, assumed: assumed}
	if machine != nil && (config.Device == "auto" || config.Device == machine.Device) {
		p.options.Device = machine.Device
		return p, nil
	}
	return p, p.device(open)
}

// shapes are the models that a command line takes its own from, by --model or from the config.json of --load, each
// read once.
type shapes struct {
	mu         sync.Mutex
	read       map[string]shape
	vocabulary int // ids of the last one; 0: there is none
}

type shape struct {
	flags      map[string][]string
	vocabulary int
	err        error
}

// options have ParseWith ask s.
func (s *shapes) options() arguments.Options {
	return arguments.Options{Layouts: true, Experts: true, CheckpointValues: func(path string, step int64) (map[string][]string, error) {
		return s.of(fmt.Sprint("--load ", path, " ", step), func() (got shape) {
			got.flags, got.vocabulary, got.err = training.PlanFlags(path, step)
			return got
		})
	}, PresetValues: func(name string) (map[string][]string, error) {
		return s.of("--model "+name, func() (got shape) {
			if m, err := spec.Preset(name); err == nil {
				got.vocabulary = m.VocabSize
			}
			got.flags, got.err = training.PresetFlags(name)
			return got
		})
	}}
}

// of is the shape of a key, which make reads if nobody has yet.
func (s *shapes) of(key string, make func() shape) (map[string][]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	got, known := s.read[key]
	if !known {
		if s.read == nil {
			s.read = map[string]shape{}
		}
		got = make()
		s.read[key] = got
	}
	if got.vocabulary > 0 {
		s.vocabulary = got.vocabulary
	}
	return maps.Clone(got.flags), got.err
}

// setVocab takes the ids of the shape where no flag names a tokenizer.
func (s *shapes) setVocab(c *config.Run, report *arguments.Report) error {
	if s.vocabulary > 0 && !slices.ContainsFunc(tokenizer.Flags(), func(f tokenizer.Flag) bool { return report.Given(f.Name) }) {
		return c.SetVocab(s.vocabulary)
	}
	return setVocab(c)
}

// folders is args with the folder of a config.json that --load names.
func folders(args []string) []string {
	args = slices.Clone(args)
	for i, word := range args {
		if path, inline := strings.CutPrefix(word, "--load="); inline && filepath.Base(path) == "config.json" {
			args[i] = "--load=" + filepath.Dir(path)
		} else if i > 0 && args[i-1] == "--load" && filepath.Base(word) == "config.json" {
			args[i] = filepath.Dir(word)
		}
	}
	return args
}

// completed is args with what a plan does not depend on, and with the smallest micro-batch and the model's context
// where they do not say them; assumed are those two.
func completed(o arguments.Options, args []string) (all []string, assumed string) {
	o.Partial = true
	c, report, _ := arguments.ParseWith(o, args) // what is wrong is reported when all are read
	if report.Help {
		return args, ""
	}
	of := length(&c, report)
	if c.MicroBatchSize == 0 && !report.Given("micro-batch-size") {
		of = append(of, "--micro-batch-size", "1")
	}
	return slices.Concat(args, of, free(&c, report)), strings.Join(of, " ")
}

// length is the model's context as the length of sequences, where c has none.
func length(c *config.Run, report *arguments.Report) (flags []string) {
	if longest := max(c.Model.Context, c.Model.MaxPositions); c.SeqLength == 0 && longest > 0 && !report.Given("seq-length") {
		flags = []string{"--seq-length", fmt.Sprint(longest)}
	}
	return flags
}

// free are the flags that no plan depends on, where c lacks them. A flag with a wrong value is not replaced.
func free(c *config.Run, report *arguments.Report) (flags []string) {
	if c.TrainIters == 0 && c.TrainSamples == 0 && !report.Given("train-iters") && !report.Given("train-samples") {
		flags = append(flags, "--train-iters", "1")
	}
	if c.Optimizer.LR == 0 && !report.Given("lr") {
		flags = append(flags, "--lr", "1e-4")
	}
	if len(c.Data.Prefixes()) == 0 && !c.Data.Mock && c.Tuning.Data == "" {
		flags = append(flags, "--mock-data")
	}
	return flags
}

// setVocab takes the ids of the tokenizer where its files are here, else --vocab-size.
func setVocab(c *config.Run) error {
	tok, err := tokenizer.FromConfig(c.Tokenizer)
	switch size := c.Tokenizer.VocabSize; {
	case err == nil:
		return c.SetVocab(tok.VocabSize())
	case size > 0:
		return c.SetVocab(size)
	}
	return fmt.Errorf("%w; without the files, give --vocab-size, the number of ids", err)
}

// device is that of --device; one that this machine lacks is counted all the same.
func (p *runPlan) device(open func(name string) (*device.Device, error)) error {
	d, err := open(p.config.Device)
	if err != nil && p.config.Device != "cuda" {
		return err
	}
	p.options.Device = p.config.Device
	if err == nil {
		p.options.Device, p.options.Real = d.Name, d
	}
	return nil
}

func (p *runPlan) close() {
	if p.options.Real != nil {
		p.options.Real.Close()
	}
}

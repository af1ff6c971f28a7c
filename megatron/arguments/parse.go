package arguments

import (
	"errors"
	"slices"

	"monotron/internal/argv"
	"monotron/megatron/arguments/table"
	"monotron/megatron/config"
)

// Options say what the caller can do and knows.
type Options struct {
	// Layouts: the caller trains on more than one rank; else larger sizes are refused.
	Layouts bool
	// Experts: the caller trains mixtures of experts; else they are refused.
	Experts bool
	// Partial: nothing is required (model, data, length); what is given is checked.
	Partial bool
	// ModelOnly: how the flags assign the model to ranks does not matter, and
	// need not fit the ranks there are; the Config is that of one rank.
	ModelOnly bool
	// Ranks started by a launcher; 0: none, --world-size decides.
	Ranks int
	// CheckpointValues reads a checkpoint's arguments for --use-checkpoint-args,
	// of the iteration step or (-1) the latest: flag names without dashes to
	// values (a switch: "true" or "false"); nil without a checkpoint.
	CheckpointValues func(folder string, step int64) (map[string][]string, error)
	// PresetValues are the flags of a known model, for --model.
	PresetValues func(name string) (map[string][]string, error)
}

// Parse reads the command line of a run on one rank of a dense model; see
// ParseWith.
func Parse(args []string) (config.Run, *Report, error) {
	return ParseWith(Options{}, args)
}

// ParseWith reads args (without the program's name). The command line wins over
// the --config file, that over a checkpoint's arguments (--use-checkpoint-args),
// that over the defaults. The error lists every problem and exits with
// exitcode.Usage. With --help nothing is checked.
func ParseWith(o Options, args []string) (config.Run, *Report, error) {
	p := &parser{options: o, build: defaulted(), values: map[string]value{}, wrong: map[string]bool{}, bare: map[string]bool{}, report: &Report{}}
	p.report.parser = p
	p.commandLine(args)
	if p.given("help") {
		p.report.Help = true
		return p.Run, p.report, nil
	}
	if err := p.configFile(); err != nil {
		return p.Run, p.report, err // without it every other complaint would mislead
	}
	p.preset()
	p.checkpoint()
	p.assign()
	p.derive()
	p.Flags = p.said()
	p.report.PrintConfig = p.Raw.PrintConfig
	return p.Run, p.report, p.err()
}

// parser holds one reading of a command line.
type parser struct {
	*build
	options  Options
	values   map[string]value // by the row's name; defaults are not in it
	wrong    map[string]bool  // flags whose value is a problem already
	bare     map[string]bool  // flags that were given without their optional value
	problems []error
	refusals []refusal // of complete flags
	report   *Report

	emptyLoad string // folder of --use-checkpoint-args that holds no checkpoint
}

type value struct {
	texts  []string
	source string // "command line", "run.yaml:3", "checkpoint"
	direct bool   // typed by the user, not read from a checkpoint
	typed  string // the flag's name as it was typed, which may be another than the row's; "": the row's
}

func (p *parser) given(name string) bool {
	_, ok := p.values[name]
	return ok
}

func (p *parser) isOn(name string) bool {
	v, ok := p.values[name]
	return ok && (len(v.texts) == 0 || v.texts[0] != "false")
}

func (p *parser) commandLine(args []string) {
	if p.report.HelpAll = slices.Contains(args, "--help-all"); p.report.HelpAll || slices.Contains(args, "-h") {
		args = append(slices.DeleteFunc(slices.Clone(args), func(word string) bool { return word == "--help-all" }), "--help")
	}
	given, rest, err := argv.Split(table.Arities(), args)
	for _, problem := range separate(err) {
		p.problems = append(p.problems, problem)
		var unknown *argv.Unknown
		if errors.As(problem, &unknown) {
			meant(unknown)
			p.spoil(unknown.Near...)
		}
	}
	for _, stray := range rest {
		p.problem("unexpected argument %q; write every value after its flag", stray)
	}
	for _, g := range given {
		p.take(table.Find(g.Name), g.Name, g.Values)
	}
}

// take notes the values of one flag on the command line, where it is typed as name.
func (p *parser) take(f *table.Flag, name string, texts []string) {
	if len(texts) == 0 && f.Empty != "" {
		texts, p.bare[f.Name] = []string{f.Empty}, true
	}
	if len(texts) == 0 && f.Kind != table.Switch && f.Arity() != argv.Any {
		p.spoil(f.Name) // Split said that the value is missing
		return
	}
	if f.Repeat {
		texts = append(slices.Clone(p.values[f.Name].texts), texts...)
	}
	p.values[f.Name] = value{texts, "command line", true, name}
}

// separate takes apart what argv.Split joined.
func separate(err error) []error {
	if err == nil {
		return nil
	}
	var many interface{ Unwrap() []error }
	if errors.As(err, &many) {
		return many.Unwrap()
	}
	return []error{err}
}

package arguments

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"monotron/fault"
	"monotron/flags"
	"monotron/megatron/training"
)

// Options say what the caller can do and knows.
type Options struct {
	// Layouts: the caller trains on more than one rank; else larger sizes are refused.
	Layouts bool
	// Contexts: the caller cuts sequences over ranks; else that is refused.
	Contexts bool
	// Experts: the caller trains mixtures of experts; else they are refused.
	Experts bool
	// Partial: nothing is required (model, data, length); what is given is checked.
	Partial bool
	// ModelOnly: how the flags place the model on ranks is of no interest, and
	// need not fit the ranks there are; the Config is that of one rank.
	ModelOnly bool
	// Ranks started by a launcher; 0: none, --world-size decides.
	Ranks int
	// HasCUDA: a usable GPU is here.
	HasCUDA bool
	// CheckpointValues reads a checkpoint's arguments for --use-checkpoint-args,
	// of the iteration step or (-1) the latest: flag names without dashes to
	// values (a switch: "true" or "false"); nil where there is no checkpoint.
	CheckpointValues func(folder string, step int64) (map[string][]string, error)
}

// Parse reads the command line of a run on one rank of a dense model; see
// ParseWith.
func Parse(args []string) (training.Config, *Report, error) {
	return ParseWith(Options{}, args)
}

// ParseWith reads args (without the program's name). The command line wins over
// the --config file, that over a checkpoint's arguments (--use-checkpoint-args),
// that over the defaults. The error lists every problem and exits with
// fault.Usage. With --help nothing is checked.
func ParseWith(o Options, args []string) (training.Config, *Report, error) {
	p := &parser{options: o, build: newBuild(), values: map[string]value{}, wrong: map[string]bool{}, report: &Report{}}
	p.report.parser = p
	p.commandLine(args)
	if p.given("help") {
		p.report.Help = true
		return p.Config, p.report, nil
	}
	if err := p.configFile(); err != nil {
		return p.Config, p.report, err // without it every other complaint would mislead
	}
	p.checkpoint()
	p.assign()
	p.derive()
	p.Flags = p.said()
	p.report.PrintConfig = p.Raw.PrintConfig
	return p.Config, p.report, p.err()
}

// parser holds one reading of a command line.
type parser struct {
	*build
	options  Options
	values   map[string]value // by the row's name; defaults are not in it
	wrong    map[string]bool  // flags whose value is a problem already
	problems []error
	report   *Report

	emptyLoad string // folder of --use-checkpoint-args that holds no checkpoint
}

type value struct {
	texts  []string
	source string // "command line", "run.yaml:3", "checkpoint"
	direct bool   // typed by the user, not read from a checkpoint
}

func (p *parser) given(name string) bool {
	_, ok := p.values[name]
	return ok
}

func (p *parser) problem(format string, a ...any) {
	p.problems = append(p.problems, fmt.Errorf(format, a...))
}

func (p *parser) notice(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	if !slices.Contains(p.report.Notices, text) {
		p.report.Notices = append(p.report.Notices, text)
	}
}

// err is the list of all problems.
func (p *parser) err() error {
	switch len(p.problems) {
	case 0:
		return nil
	}
	if p.emptyLoad != "" {
		p.problem("--use-checkpoint-args: there is no checkpoint in %s to take flags from", p.emptyLoad)
	}
	switch len(p.problems) {
	case 1:
		return fault.With(fault.Usage, p.problems[0])
	}
	lines := make([]string, len(p.problems))
	for i, problem := range p.problems {
		lines[i] = "  " + problem.Error()
	}
	return fault.Errorf(fault.Usage, "%d problems:\n%s", len(lines), strings.Join(lines, "\n"))
}

func (p *parser) commandLine(args []string) {
	if slices.Contains(args, "-h") {
		args = append(slices.Clone(args), "--help")
	}
	given, rest, err := flags.Split(arities(), args)
	p.problems = append(p.problems, separate(err)...)
	for _, stray := range rest {
		p.problem("%q stands alone: every value follows its flag", stray)
	}
	for _, g := range given {
		f := index[g.Name]
		texts := g.Values
		if len(texts) == 0 && f.Kind != Switch && f.Empty == "" {
			p.wrong[f.Name] = true // Split said that the value is missing
			continue
		}
		if len(texts) == 0 && f.Empty != "" {
			texts = []string{f.Empty}
		}
		if f.Repeat {
			texts = append(slices.Clone(p.values[f.Name].texts), texts...)
		}
		p.values[f.Name] = value{texts, "command line", true}
	}
}

// separate takes apart what flags.Split joined.
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

// configFile reads the YAML file of --config. The error is that of a file which
// cannot be read as a whole; wrong entries are problems.
func (p *parser) configFile() error {
	if !p.given("config") {
		return nil
	}
	file := p.values["config"].texts[0]
	data, err := os.ReadFile(file)
	switch {
	case os.IsNotExist(err):
		return fault.Errorf(fault.NoInput, "--config %s: no such file", file)
	case err != nil:
		return fault.Errorf(fault.IO, "--config: %w", err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return fault.Errorf(fault.Usage, "--config %s: %w", file, err)
	}
	if len(document.Content) == 0 {
		return nil
	}
	top := document.Content[0]
	if top.Kind != yaml.MappingNode {
		return fault.Errorf(fault.Usage, "--config %s: line %d: the file must be a list of `name: value` lines", file, top.Line)
	}
	lines := map[string]int{} // of each flag
	for i := 0; i+1 < len(top.Content); i += 2 {
		p.configEntry(file, top.Content[i], top.Content[i+1], lines)
	}
	return nil
}

func (p *parser) configEntry(file string, key, val *yaml.Node, lines map[string]int) {
	where := fmt.Sprintf("%s:%d", file, key.Line)
	name := strings.ReplaceAll(key.Value, "_", "-")
	f, ok := index[name]
	if !ok {
		near := ""
		if names := flags.Nearest(arities(), name); len(names) > 0 {
			near = "; did you mean " + strings.Join(names, " or ") + "?"
		}
		p.problem("%s: unknown name %q%s", where, key.Value, near)
		return
	}
	texts, ok := yamlTexts(val)
	before := lines[f.Name]
	lines[f.Name] = key.Line
	switch {
	case before > 0:
		p.problem("%s: %s is given in line %d already", where, name, before)
	case !ok:
		p.problem("%s: %s takes a value or a list of values", where, name)
	case f.Kind == Switch && (len(texts) != 1 || texts[0] != "true" && texts[0] != "false"):
		p.problem("%s: %s is a switch: true or false", where, name)
	case !p.given(f.Name) && len(texts) > 0:
		p.values[f.Name] = value{texts, where, true}
	}
}

// yamlTexts is a scalar or a list of scalars; null is nothing.
func yamlTexts(n *yaml.Node) ([]string, bool) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return nil, true
	case n.Kind == yaml.ScalarNode && n.Tag == "!!bool":
		return []string{strings.ToLower(n.Value)}, true
	case n.Kind == yaml.ScalarNode:
		return []string{n.Value}, true
	case n.Kind != yaml.SequenceNode:
		return nil, false
	}
	var texts []string
	for _, entry := range n.Content {
		if entry.Kind != yaml.ScalarNode {
			return nil, false
		}
		texts = append(texts, entry.Value)
	}
	return texts, true
}

// checkpoint takes what is still open from the arguments in a checkpoint.
func (p *parser) checkpoint() {
	if !p.isOn("use-checkpoint-args") {
		return
	}
	if !p.given("load") && !p.given("pretrained-checkpoint") {
		p.problem("--use-checkpoint-args needs --load or --pretrained-checkpoint")
		return
	}
	if p.options.CheckpointValues == nil {
		return
	}
	saved, err := p.savedValues()
	if err != nil {
		p.problem("--use-checkpoint-args: %v", err)
		return
	}
	if saved == nil {
		p.notice("--use-checkpoint-args: no checkpoint in %s yet; the command line alone counts", p.emptyLoad)
	}
	for name, texts := range saved {
		f, ok := index[name]
		if ok && f.Class == Works && f.ofTheModelAndItsTraining() && len(texts) > 0 && !p.given(f.Name) {
			p.values[f.Name] = value{texts, "checkpoint", false}
		}
	}
}

// savedValues are those of --load, or while that holds nothing of
// --pretrained-checkpoint; nil where there is neither.
func (p *parser) savedValues() (saved map[string][]string, err error) {
	if p.given("load") {
		step := int64(-1)
		if p.given("ckpt-step") {
			if n, err := strconv.ParseInt(p.values["ckpt-step"].texts[0], 10, 64); err == nil && n > 0 {
				step = n
			}
		}
		p.emptyLoad = p.values["load"].texts[0]
		saved, err = p.options.CheckpointValues(p.emptyLoad, step)
	}
	if saved == nil && err == nil && p.given("pretrained-checkpoint") {
		p.emptyLoad = p.values["pretrained-checkpoint"].texts[0]
		saved, err = p.options.CheckpointValues(p.emptyLoad, -1)
	}
	if saved != nil {
		p.emptyLoad = ""
	}
	return saved, err
}

// ofTheModelAndItsTraining tells flags that say what is trained and how from
// those that concern one process: where it runs, reads, writes and stops.
func (f *Flag) ofTheModelAndItsTraining() bool {
	switch f.Owner {
	case ownCheckpoint, ownLogging, ownOwn, ownLayout, ownDistributed:
		return false
	}
	return !strings.HasPrefix(f.Name, "exit-") && f.Name != "skip-train" && f.Name != "data-cache-path"
}

// said is what was given, for the next --use-checkpoint-args.
func (p *parser) said() map[string][]string {
	all := map[string][]string{}
	for name, v := range p.values {
		f := index[name]
		switch {
		case f.Class != Works || !f.ofTheModelAndItsTraining():
		case f.Kind == Switch:
			all[name] = []string{fmt.Sprint(p.isOn(name))}
		default:
			all[name] = v.texts
		}
	}
	return all
}

func (p *parser) isOn(name string) bool {
	v, ok := p.values[name]
	return ok && (len(v.texts) == 0 || v.texts[0] != "false")
}

// assign writes defaults and values into the build, row by row.
func (p *parser) assign() {
	for i := range table {
		f := &table[i]
		v, given := p.values[f.Name]
		if !given {
			if f.Class == Works && f.Default != "" {
				if err := p.set(f, defaults(f)); err != nil {
					panic(fmt.Sprintf("arguments: default of --%s: %v", f.Name, err))
				}
			}
			continue
		}
		if f.Kind == Switch && !p.isOn(f.Name) {
			continue
		}
		p.assignOne(f, v)
	}
}

func defaults(f *Flag) []string {
	if f.Kind >= Ints {
		return strings.Fields(f.Default)
	}
	return []string{f.Default}
}

func (p *parser) assignOne(f *Flag, v value) {
	if f.Class == Refused {
		p.problem("--%s: %s", f.Name, f.Why)
		return
	}
	texts, ok := p.checkValues(f, v.texts)
	if !ok {
		p.wrong[f.Name] = true
		return
	}
	var err error
	if f.Class == Works {
		err = p.set(f, texts)
	} else {
		p.notice("--%s has no effect here: %s", f.Name, f.Why)
		err = parsesAs(f.Kind, texts)
	}
	if err != nil {
		p.wrong[f.Name] = true
		p.problem("--%s: %v", f.Name, err)
	}
}

// checkValues checks count and choices and rewrites other spellings.
func (p *parser) checkValues(f *Flag, texts []string) ([]string, bool) {
	if f.Kind != Switch && f.Kind < Ints && len(texts) != 1 {
		p.problem("--%s takes one value, found %d", f.Name, len(texts))
		return nil, false
	}
	if f.Count > 0 && len(texts) != f.Count {
		p.problem("--%s takes %d values, found %d", f.Name, f.Count, len(texts))
		return nil, false
	}
	if f.Name == "keep-last" && texts[0] == "-1" {
		texts = []string{"0"} // Megatron's "all"
	}
	out := slices.Clone(texts)
	for i, text := range out {
		if other, ok := f.Same[text]; ok {
			out[i], text = other, other
		}
		if why, ok := f.Refuse[text]; ok {
			p.problem("--%s %s: %s", f.Name, text, why)
			return nil, false
		}
		if f.Choices != nil && f.Kind != Switch && !slices.Contains(f.Choices, text) {
			p.problem("--%s %s: choose from %s", f.Name, text, strings.Join(f.Choices, ", "))
			return nil, false
		}
	}
	return out, true
}

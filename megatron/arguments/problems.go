package arguments

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"monotron/internal/exitcode"
	"monotron/megatron/arguments/table"
)

func (p *parser) problem(format string, a ...any) {
	p.problems = append(p.problems, fmt.Errorf(format, a...))
}

// clash is a problem of several flags with each other. It is not reported while the
// value of one of them is invalid itself: that has been said, and what follows from it
// would only mislead.
func (p *parser) clash(between, format string, a ...any) {
	if p.sound(between) {
		p.problem(format, a...)
	}
}

// sound reports whether no value of the flags, separated by spaces, is wrong.
func (p *parser) sound(names string) bool {
	return !slices.ContainsFunc(strings.Fields(names), func(name string) bool { return p.wrong[name] })
}

// spoil notes flags whose values, or lack of them, have been complained about.
func (p *parser) spoil(names ...string) {
	for _, name := range names {
		p.wrong[table.Find(name).Name] = true
	}
}

// refusal is one reason and the flags that it ends the run for.
type refusal struct {
	why   string
	flags []string
}

// refuse adds a flag to those of the same reason: a user who left out one of them
// would only meet the next.
func (p *parser) refuse(f *table.Flag) {
	p.spoil(append(slices.Clone(f.Instead), f.Name)...)
	for i := range p.refusals {
		if p.refusals[i].why == f.Why {
			p.refusals[i].flags = append(p.refusals[i].flags, "--"+f.Name)
			return
		}
	}
	p.refusals = append(p.refusals, refusal{f.Why, []string{"--" + f.Name}})
}

// need reports a flag that is missing, or too small for others, unless only
// parts of a command line are read. Names after the first are others that would
// do as well.
func (p *parser) need(missing bool, names, why string) bool {
	if !missing || p.options.Partial || !p.sound(names) {
		return missing
	}
	flag := strings.Fields(names)[0]
	if v, given := p.values[flag]; given {
		p.problem("--%s %s is too small; give %s", flag, strings.Join(v.texts, " "), why)
	} else {
		p.problem("--%s is missing; give %s", flag, why)
	}
	return missing
}

func (p *parser) notice(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	if !slices.Contains(p.report.Notices, text) {
		p.report.Notices = append(p.report.Notices, text)
	}
}

// err is the list of all problems.
func (p *parser) err() error {
	all := slices.Clone(p.problems)
	for _, r := range p.refusals {
		all = append(all, fmt.Errorf("%s: %s", strings.Join(r.flags, ", "), r.why))
	}
	if len(all) > 0 && p.emptyLoad != "" {
		all = append(all, fmt.Errorf("--use-checkpoint-args: %s contains no checkpoint; give the model's flags, or another --load", p.emptyLoad))
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return exitcode.With(exitcode.Usage, all[0])
	}
	return exitcode.With(exitcode.Usage, problems(all))
}

// Together is the error of a command line with further problems, found outside of it, in one list; err may be nil.
func Together(err error, further []error) error {
	if len(further) == 0 {
		return err
	}
	code := exitcode.CodeOf(further[0])
	var all problems
	if err != nil {
		code = exitcode.CodeOf(err)
		if !errors.As(err, &all) {
			all = problems{err}
		}
	}
	if all = append(slices.Clone(all), further...); len(all) == 1 {
		return all[0]
	}
	return exitcode.With(code, all)
}

// problems is several errors of a command line; errors.As finds the list.
type problems []error

func (p problems) Error() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d problems:", len(p))
	for _, problem := range p {
		out.WriteString("\n  " + problem.Error())
	}
	return out.String()
}

func (p problems) Unwrap() []error { return p }

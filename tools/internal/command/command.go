package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/tokenizer"
)

// Wrap lets c take its arguments as Megatron's tools do: flags with several
// values, underscores for dashes, unknown names answered with the nearest ones.
func Wrap(c *cli.Command) *cli.Command {
	return wrap(c, argv.Split)
}

// WrapInstead is Wrap for a command that answers flags of Megatron's tool, which it does not have, with what to use
// instead, by their names.
func WrapInstead(c *cli.Command, instead map[string]string) *cli.Command {
	return wrap(c, func(set argv.Set, args []string) ([]argv.Given, []string, error) {
		given, rest, err := argv.Split(set, args)
		argv.Explain(err, instead)
		return given, rest, err
	})
}

// WrapOpen is Wrap for a command that also takes flags of another's: those it does
// not know are left, with their values, to the action's Args.
func WrapOpen(c *cli.Command) *cli.Command {
	return wrap(c, func(set argv.Set, args []string) ([]argv.Given, []string, error) {
		own, others := argv.Part(set, args)
		given, _, err := argv.Split(set, own)
		return given, others, err
	})
}

// WrapStarter is Wrap for a command that starts another: its words, from the first that is neither a flag nor a value of
// c's on, are left to the action's Args, with and without -- in front of them. Names are those that are started most.
func WrapStarter(c *cli.Command, names []string) *cli.Command {
	return wrap(c, func(set argv.Set, args []string) ([]argv.Given, []string, error) {
		return argv.Split(set, argv.Dashed(set, args, names))
	})
}

func wrap(c *cli.Command, split func(argv.Set, []string) ([]argv.Given, []string, error)) *cli.Command {
	mustHaveRanges(c)
	return &cli.Command{
		Name: c.Name, Usage: c.Usage, ArgsUsage: c.ArgsUsage, Description: c.Description,
		Flags: Shown(c.Flags), SkipFlagParsing: true, HideHelpCommand: true,
		// Flags are parsed by our own rules, then handed to the library as --name=value.
		Action: func(outer *cli.Context) error {
			app := &cli.App{
				Name: c.Name, HelpName: outer.Command.HelpName, Usage: c.Usage, ArgsUsage: c.ArgsUsage, Description: c.Description,
				Flags: c.Flags, HideVersion: true, HideHelpCommand: true, Metadata: map[string]any{},
				Action: func(inner *cli.Context) error {
					if err := ranges(inner); err != nil {
						return err
					}
					return c.Action(inner)
				},
				DisableSliceFlagSeparator: true,
				ExitErrHandler:            func(*cli.Context, error) {},
				OnUsageError:              func(_ *cli.Context, err error, _ bool) error { return exitcode.With(exitcode.Usage, err) },
				Reader:                    outer.App.Reader, Writer: outer.App.Writer, ErrWriter: outer.App.ErrWriter,
			}
			args := outer.Args().Slice()
			// Help does not need the other flags to be right.
			if slices.Contains(args, "--help-all") {
				app.Metadata[helpAll] = true
				return app.RunContext(outer.Context, []string{c.Name, "--help"})
			}
			if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
				return app.RunContext(outer.Context, []string{c.Name, "--help"})
			}
			given, rest, err := split(arities(c.Flags), args)
			if err == nil {
				err = readable(c.Flags, given)
			}
			if err != nil {
				return err
			}
			return app.RunContext(outer.Context, slices.Concat([]string{c.Name}, argv.ForCLI(given), []string{"--"}, rest))
		},
	}
}

// arities gives package flags what follows each flag.
func arities(list []cli.Flag) argv.Set {
	set := argv.Set{}
	for _, f := range list {
		arity := argv.One
		switch f.(type) {
		case *cli.BoolFlag:
			arity = argv.Switch
		case *cli.StringSliceFlag, *cli.IntSliceFlag:
			arity = argv.Many
		}
		for _, name := range f.Names() {
			set[name] = arity
		}
	}
	return set
}

// NoArgs refuses words that belong to no flag.
func NoArgs(c *cli.Context) error {
	if !c.Args().Present() {
		return nil
	}
	text := fmt.Sprintf("the argument %q does not belong to a flag", strings.Join(c.Args().Slice(), " "))
	if _, err := os.Stat(c.Args().First()); err == nil { // a path whose flag is clear
		for _, name := range []string{"load", "input"} {
			known := slices.ContainsFunc(c.App.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
			if known && !c.IsSet(name) {
				text += fmt.Sprintf("; did you mean --%s %s?", name, argv.Quoted(c.Args().First()))
				break
			}
		}
	}
	return exitcode.Errorf(exitcode.Usage, "%s", text)
}

// TokenizerFlags is the shared table as urfave flags.
func TokenizerFlags() (list []cli.Flag) {
	for _, f := range tokenizer.Flags() {
		switch f.Arity {
		case argv.Switch:
			list = append(list, &cli.BoolFlag{Name: f.Name, Usage: f.Help})
		case argv.Many:
			list = append(list, &cli.StringSliceFlag{Name: f.Name, Usage: f.Help})
		default:
			flag := &cli.StringFlag{Name: f.Name, Value: f.Default, Usage: f.Help}
			if f.Name == "tokenizer-model" {
				flag.Aliases = []string{"tokenizer-name-or-path"} // Megatron-DeepSpeed's
			}
			list = append(list, flag)
		}
	}
	return In("tokenizer", list)
}

// TokenizerConfig reads those flags.
func TokenizerConfig(c *cli.Context) (config tokenizer.Config, err error) {
	for _, f := range tokenizer.Flags() {
		if !c.IsSet(f.Name) {
			continue
		}
		var values []string
		switch f.Arity {
		case argv.Switch:
			if !c.Bool(f.Name) {
				continue
			}
		case argv.Many:
			values = c.StringSlice(f.Name)
		default:
			values = []string{c.String(f.Name)}
		}
		if err := f.Set(&config, values); err != nil {
			return config, exitcode.Errorf(exitcode.Usage, "--%s: %w", f.Name, err)
		}
	}
	return config, nil
}

// NoteIdle says which tokenizer flags the type does not read: Megatron's scripts give those of several types. A
// model's file that is not read, however, is refused where it can only mean another type.
func NoteIdle(c *cli.Context, config tokenizer.Config) error {
	kind, idle := config.Idle()
	for _, flag := range idle {
		if flag == "tokenizer-model" && kind != "NullTokenizer" {
			return exitcode.Errorf(exitcode.Usage, "--tokenizer-model %s would have no effect, because --tokenizer-type %s does not read such a file; give the type of that model, such as HuggingFaceTokenizer, or leave --tokenizer-model out", config.Model, kind)
		}
		Note(c)("note: --%s has no effect with --tokenizer-type %s", flag, kind)
	}
	return nil
}

// Tokenizer makes the tokenizer they name.
func Tokenizer(c *cli.Context) (tokenizer.Tokenizer, error) {
	config, err := TokenizerConfig(c)
	if err == nil {
		err = NoteIdle(c, config)
	}
	if err != nil {
		return nil, err
	}
	return tokenizer.FromConfig(config)
}

// Note writes lines for a person to the command's standard error.
func Note(c *cli.Context) func(format string, args ...any) {
	return func(format string, args ...any) { fmt.Fprintf(c.App.ErrWriter, format+"\n", args...) }
}

// Printer writes to w and keeps the first error, so that a full disk or a
// closed pipe is noticed once, at the end.
type Printer struct {
	W   io.Writer
	Err error
}

// JSON prints v, indented.
func (p *Printer) JSON(v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		p.Err = errors.Join(p.Err, exitcode.With(exitcode.Internal, err))
		return
	}
	p.Printf("%s\n", text)
}

// Printf is fmt.Fprintf; after an error it does nothing.
func (p *Printer) Printf(format string, args ...any) {
	if p.Err == nil {
		_, err := fmt.Fprintf(p.W, format, args...)
		p.Err = exitcode.With(exitcode.IO, err)
	}
}

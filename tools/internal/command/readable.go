package command

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/internal/argv"
	"monotron/internal/exitcode"
)

// readable refuses values that are not of their flag's type; the error names all of them.
func readable(list []cli.Flag, given []argv.Given) error {
	var problems []error
	for _, g := range given {
		at := slices.IndexFunc(list, func(f cli.Flag) bool { return slices.Contains(f.Names(), g.Name) })
		if at < 0 {
			continue // of the command that is started
		}
		parse, kind := parser(list[at])
		for _, text := range g.Values {
			if parse == nil {
				continue
			}
			if err := parse(text); errors.Is(err, strconv.ErrRange) {
				problems = append(problems, fmt.Errorf("--%s %s is too large", g.Name, text))
			} else if err != nil {
				problems = append(problems, fmt.Errorf("--%s must be %s, not %s", g.Name, kind, argv.Shown(text)))
			}
		}
	}
	return exitcode.With(exitcode.Usage, errors.Join(problems...))
}

// parser is how the library parses the flag's values, and what these are; nil for text.
func parser(f cli.Flag) (parse func(text string) error, kind string) {
	switch f.(type) {
	case *cli.IntFlag, *cli.IntSliceFlag, *cli.Int64Flag:
		return func(text string) error { _, err := strconv.ParseInt(text, 0, 64); return err }, "an integer"
	case *cli.Uint64Flag:
		return func(text string) error { _, err := strconv.ParseUint(text, 0, 64); return err }, "an integer of at least 0"
	case *cli.Float64Flag, *cli.Float64SliceFlag:
		return func(text string) error { _, err := strconv.ParseFloat(text, 64); return err }, "a number"
	case *cli.DurationFlag:
		return func(text string) error { _, err := time.ParseDuration(text); return err }, "a duration, as in 10s or 5m"
	}
	return nil, ""
}

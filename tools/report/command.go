package report

import (
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"monotron/fault"
	"monotron/tools/internal/command"
	"monotron/whole"
)

const description = `FOLDER holds what --log-jsonl wrote, under any name; or give that file. Checkpoints and
verdicts beside it, or one folder below, become marks, and the newest checkpoint tells the
run's flags. The page needs no network and no program but a browser.`

// Command is report.
func Command() *cli.Command {
	return command.Wrap(&cli.Command{
		Name:        "report",
		Usage:       "a run, or several compared, as one page",
		ArgsUsage:   "FOLDER",
		Description: description,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "compare", Usage: "`FOLDER` or several, of runs to draw beside it"},
			&cli.StringFlag{Name: "output", Usage: "`FILE` to write; markdown and csv without it: standard output", DefaultText: "report.html"},
			&cli.StringFlag{Name: "format", Value: "html", Usage: "html, markdown or csv (every step, every digit)"},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Len() != 1 {
				return fault.Errorf(fault.Usage, "which run? Give its folder; others go behind --compare")
			}
			write, ok := formats[c.String("format")]
			if !ok {
				return fault.Errorf(fault.Usage, "--format %s is unknown; there are html, markdown and csv", c.String("format"))
			}
			runs, err := openRuns(append(c.Args().Slice(), c.StringSlice("compare")...), (*Run).ended)
			if err != nil {
				return err
			}
			path := c.String("output")
			if path == "" && c.String("format") == "html" {
				path = "report.html"
			}
			if path == "" || path == "-" {
				return write(os.Stdout, runs)
			}
			return whole.Write(path, 0o644, func(f *os.File) error { return write(f, runs) })
		},
	})
}

var formats = map[string]func(io.Writer, []*Run) error{
	"html": func(w io.Writer, runs []*Run) error {
		data := dataOf(runs)
		return writePage(w, &data)
	},
	"markdown": markdown,
	"csv":      commas,
}

// openRuns opens the runs of a command line and finishes each.
func openRuns(paths []string, finish func(*Run) error) ([]*Run, error) {
	var runs []*Run
	for _, path := range paths {
		r, err := openRun(path)
		if err == nil {
			err = finish(r)
		}
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

package report

import (
	"io"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"monotron/fault"
	"monotron/megatron/dashboard"
	"monotron/megatron/training"
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
			&cli.StringFlag{Name: "output", Usage: "`FILE` to write; markdown and csv without it: standard output", DefaultText: "report.html, report.png"},
			price(),
			&cli.StringFlag{Name: "format", Value: "html", Usage: "html, markdown, csv (every step, every digit) or png (the main curves); where not given, as --output ends"},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Len() != 1 {
				return fault.Errorf(fault.Usage, "which run? Give its folder; others go behind --compare")
			}
			format, path := c.String("format"), c.String("output")
			if ending := endings[filepath.Ext(path)]; ending != "" && !c.IsSet("format") {
				format = ending
			}
			write, ok := formats[format]
			if !ok {
				return fault.Errorf(fault.Usage, "--format %s is unknown; there are html, markdown, csv and png", format)
			}
			sources, err := sources(c, append(c.Args().Slice(), c.StringSlice("compare")...), true)
			if err != nil {
				return err
			}
			runs, err := dashboard.OpenAll(sources)
			if err != nil {
				return err
			}
			if path == "" && (format == "html" || format == "png") {
				path = "report." + format
			}
			if path == "" || path == "-" {
				return write(os.Stdout, runs)
			}
			return whole.Write(path, 0o644, func(f *os.File) error { return write(f, runs) })
		},
	})
}

var formats = map[string]func(io.Writer, []*dashboard.Run) error{"html": dashboard.WritePage, "markdown": markdown, "csv": commas, "png": dashboard.WritePicture}

// endings are what a file's name says where --format does not.
var endings = map[string]string{".html": "html", ".md": "markdown", ".csv": "csv", ".png": "png"}

func price() cli.Flag {
	return command.Between(0, 1e12, &cli.Float64Flag{Name: "price-per-hour", Usage: "what an hour of a run costs, in any currency: shows the cost so far and of the whole run"})
}

// sources are the runs of a command line.
func sources(c *cli.Context, paths []string, finished bool) (list []dashboard.Source, err error) {
	for _, path := range paths {
		list = append(list, dashboard.Source{Path: path, FlagsOf: training.CheckpointFlags, Price: c.Float64("price-per-hour"), Finished: finished})
	}
	return list, nil
}

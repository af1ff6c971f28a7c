package report

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"monotron/internal/argv"
	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/megatron/telemetry/dashboard"
	"monotron/megatron/training"
	"monotron/tools/internal/command"
)

const description = `The runs of several FOLDERs are compared in one page. A FOLDER contains the file that --log-jsonl wrote, under any name; you can also give the file
itself. Checkpoints and verdicts in the same folder, or in a folder inside it, become marks, and the
run's flags are read from the newest checkpoint. The page needs a browser and no network.`

// Command is report.
func Command() *cli.Command {
	return command.Wrap(&cli.Command{
		Name:        "report",
		Usage:       "write a report of one run, or a comparison of several, as one page",
		ArgsUsage:   "FOLDER...",
		Description: description,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "compare", Usage: "also draw the run in `FOLDER` in the same charts, as if FOLDER were one of the arguments; may be repeated"},
			&cli.StringFlag{Name: "output", Usage: "write to `FILE`, and replace an earlier file of this name; by default html and png go to report.html and report.png in the current folder, markdown and csv to standard output"},
			price(),
			&cli.StringFlag{Name: "format", Value: "html", Usage: "write html, markdown, csv (every step, every digit) or png (the main curves); if not given, chosen by the suffix of --output"},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Len() == 0 {
				return exitcode.Errorf(exitcode.Usage, "the folder of the run is missing; give one as FOLDER, or several folders to compare the runs")
			}
			// The format: as given, or by the suffix of the output.
			path := c.String("output")
			format, err := formatOf(c, path)
			if err != nil {
				return err
			}
			write := formats[format]
			// The run comes first, then those that it is compared with.
			sources, err := sources(c, append(c.Args().Slice(), c.StringSlice("compare")...), true)
			if err != nil {
				return err
			}
			runs, err := dashboard.OpenAll(sources)
			if err != nil {
				return err
			}
			// A page or picture is a file; text goes to standard output.
			if path == "" && (format == "html" || format == "png") {
				path = "report." + format
			}
			if path == "" || path == "-" {
				return write(os.Stdout, runs)
			}
			if err := nextToLogs(path, runs); err != nil {
				return err
			}
			if err := atomicfile.Write(path, 0o644, func(f *os.File) error { return write(f, runs) }); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.App.ErrWriter, "wrote %s\n", path)
			return exitcode.With(exitcode.IO, err)
		},
	})
}

// formatOf is what --format says, else how the output's name ends.
func formatOf(c *cli.Context, path string) (string, error) {
	format, ending := c.String("format"), filepath.Ext(path)
	if ending != "" && !c.IsSet("format") {
		if format = endings[ending]; format == "" {
			return "", exitcode.Errorf(exitcode.Usage, "--output %s: unknown suffix %s; use .html, .md, .csv or .png, or give --format", path, ending)
		}
	}
	if formats[format] == nil {
		return "", argv.WrongChoice("format", format, "html", "markdown", "csv", "png")
	}
	return format, nil
}

// nextToLogs refuses to write over a log that was read.
func nextToLogs(path string, runs []*dashboard.Run) error {
	there, err := os.Stat(path)
	if err != nil {
		return nil // nothing is there; the writing reports other errors
	}
	for _, r := range runs {
		if log, err := os.Stat(r.Log()); err == nil && os.SameFile(there, log) {
			return exitcode.Errorf(exitcode.Usage, "--output %s is the log of run %s, which would be overwritten; give another name", path, r.Name)
		}
	}
	return nil
}

var formats = map[string]func(io.Writer, []*dashboard.Run) error{"html": dashboard.WritePage, "markdown": markdown, "csv": commas, "png": dashboard.WritePicture}

// endings are what a file's name says where --format does not.
var endings = map[string]string{".html": "html", ".htm": "html", ".md": "markdown", ".csv": "csv", ".png": "png"}

func price() cli.Flag {
	return command.Between(0, 1e12, &cli.Float64Flag{Name: "price-per-hour", Usage: "set the cost of one hour of a run, in any currency, to show the cost so far and the estimated total cost"})
}

// sources are the runs of a command line.
func sources(c *cli.Context, paths []string, finished bool) (list []dashboard.Source, err error) {
	for _, path := range paths {
		list = append(list, dashboard.Source{Path: path, FlagsOf: training.CheckpointFlags, Price: c.Float64("price-per-hour"), Finished: finished})
	}
	return list, nil
}

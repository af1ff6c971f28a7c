// Package postmortem is the command postmortem: what the ranks of a dead run were at.
package postmortem

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/mpu/comm/failure"
	"monotron/mpu/health"
	"monotron/tools/internal/command"
)

const description = `FOLDER is a run's --run-folder: flight records of its ranks (flight_00000.bin and so on, the last
1,000 collectives each), including those of killed ranks, and the verdict. Copy the records of
several hosts into one folder first.

Prints the verdict; what each rank was doing at the end; the first call at which ranks of a group
differ (one calls another operation, or none); and the last calls of all ranks on one timeline.
--trace writes all of them as a Chrome trace (chrome://tracing, ui.perfetto.dev).`

// Command is postmortem.
func Command() *cli.Command {
	return command.Wrap(&cli.Command{
		Name:        "postmortem",
		Usage:       "merge the flight records of a run's ranks and show what each rank was doing when it died",
		ArgsUsage:   "FOLDER",
		Description: description,
		Flags: []cli.Flag{
			command.Between(0, command.Sizes, &cli.IntFlag{Name: "last", Value: 40, Usage: "show N calls on the timeline (0 shows all)"}),
			&cli.StringFlag{Name: "trace", Usage: "write a Chrome trace to `FILE`"},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Len() != 1 {
				return exitcode.Errorf(exitcode.Usage, "postmortem needs one FOLDER, the --run-folder of a run, but has %d arguments", c.Args().Len())
			}
			return run(c.Args().First(), c.Int("last"), c.String("trace"), os.Stdout)
		},
	})
}

func run(folder string, last int, trace string, w io.Writer) error {
	flights, err := read(folder)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	v, err := failure.Read(folder)
	switch {
	case err == nil:
		fmt.Fprintf(out, "verdict (%s): %s\n\n", v.Kind, v.Text)
	case exitcode.CodeOf(err) == exitcode.NoInput:
		fmt.Fprintf(out, "no verdict in %s\n\n", folder)
	default:
		return err
	}
	for _, f := range flights {
		fmt.Fprintln(out, f.End())
	}
	fmt.Fprintf(out, "\n%s\n\n", health.Divergence(flights))
	health.Timeline(out, flights, last)
	if trace != "" {
		if err := write(trace, flights); err != nil {
			return err
		}
	}
	return exitcode.With(exitcode.IO, out.Flush())
}

// read reads the records of a folder; one that is damaged is an error.
func read(folder string) ([]*health.Flight, error) {
	files, err := filepath.Glob(filepath.Join(folder, "flight_*.bin"))
	if err != nil {
		return nil, exitcode.With(exitcode.Usage, err)
	}
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return nil, exitcode.Errorf(exitcode.NoInput, "%s does not exist; give a --run-folder", folder)
	}
	if len(files) == 0 {
		return nil, exitcode.Errorf(exitcode.NoInput, "%s has no flight records; give a --run-folder (its folders before_1, before_2 and so on have the records of earlier runs)", folder)
	}
	var flights []*health.Flight
	for _, path := range files {
		f, err := health.ReadFlight(path)
		if err != nil {
			return nil, err
		}
		flights = append(flights, f)
	}
	return flights, nil
}

// write writes the trace, complete or not at all.
func write(path string, flights []*health.Flight) error {
	return atomicfile.Write(path, 0o666, func(f *os.File) error {
		out := bufio.NewWriter(f)
		if err := health.Trace(out, flights); err != nil {
			return err
		}
		return out.Flush()
	})
}

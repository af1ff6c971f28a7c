package command

import (
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
)

// All numbers outside their ranges are reported in one error of usage, before the
// command does anything; a flag that takes any number is a mistake of ours.
func TestRanges(t *testing.T) {
	ran := 0
	c := Wrap(&cli.Command{Name: "x", Flags: []cli.Flag{
		Between(1, Threads, &cli.IntFlag{Name: "workers", Value: 2}),
		Between(-1, Counts, &cli.Int64Flag{Name: "step"}),
		Between(0, 1, &cli.Float64Flag{Name: "share"}),
		Between(1, 9, &cli.IntSliceFlag{Name: "list"}),
		Between(0, 10, &cli.Uint64Flag{Name: "seed"}),
	}, Action: func(*cli.Context) error { ran++; return nil }})
	run := func(words string) error {
		return (&cli.App{Commands: []*cli.Command{c}, ExitErrHandler: func(*cli.Context, error) {}}).Run(append([]string{"monotron", "x"}, strings.Fields(words)...))
	}
	for _, words := range []string{"", "--workers 4096 --step -1 --share 1 --list 1 9 --seed 10"} {
		if err := run(words); err != nil {
			t.Errorf("%s: %v", words, err)
		}
	}
	err := run("--workers 1000000000 --step 4611686018427387904 --share NaN --list 3 10 --seed 11")
	if exitcode.CodeOf(err) != exitcode.Usage {
		t.Errorf("not a fault of usage: %v", err)
	}
	for _, want := range []string{"--workers must be from 1 to 4096, not 1000000000", "--step must be from -1 to ", "--share must be from 0 to 1, not NaN", "--list must be from 1 to 9, not 10", "--seed must be from 0 to 10, not 11"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if ran != 2 {
		t.Errorf("ran %d times, not twice", ran)
	}
	defer func() {
		if recover() == nil {
			t.Error("a number without ends was taken")
		}
	}()
	Wrap(&cli.Command{Name: "y", Flags: []cli.Flag{&cli.IntFlag{Name: "n"}}})
}

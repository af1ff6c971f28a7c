package report

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/megatron/telemetry/dashboard"
	"monotron/tools/internal/command"
)

const watchDescription = `Serves the page of report and adds new steps to it; works for finished runs too. Only the files
of the run are read. With an --addr other than a local one, everyone who reaches the address can
see the page. pretrain_gpt --dashboard-addr serves the same page from the run itself. --terminal
draws the main curves as text instead, once if standard output is not a terminal.`

// redraw is how often the terminal shows what is new.
const redraw = 2 * time.Second

// WatchCommand is watch.
func WatchCommand() *cli.Command {
	return command.Wrap(&cli.Command{
		Name:        "watch",
		Usage:       "serve a live page of one or several runs",
		ArgsUsage:   "FOLDER...",
		Description: watchDescription,
		Flags: []cli.Flag{&cli.StringFlag{Name: "addr", Value: "127.0.0.1:8080", Usage: "serve the page at `ADDRESS`"}, price(),
			&cli.BoolFlag{Name: "terminal", Usage: "draw the main curves in the terminal as text instead of a page"}},
		Action: func(c *cli.Context) error {
			if c.Args().Len() == 0 {
				return exitcode.Errorf(exitcode.Usage, "the folder of the run is missing; give one or several as FOLDER")
			}
			sources, err := sources(c, c.Args().Slice(), false)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context, syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			if c.Bool("terminal") {
				return follow(ctx, os.Stdout, sources)
			}
			return watch(ctx, c.String("addr"), sources)
		},
	})
}

// watch serves the page of some runs until ctx ends.
func watch(ctx context.Context, addr string, sources []dashboard.Source) error {
	runs, err := dashboard.OpenAll(sources) // now, not when somebody views it
	if err != nil {
		return err
	}
	server, err := dashboard.Serve(addr, sources, runs)
	if err != nil {
		return exitcode.Errorf(exitcode.Usage, "--addr %s: %w", addr, err)
	}
	logging.Stderr().From("watch").Info("the page is at http://%s/ until Ctrl-C", server.Addr())
	select {
	case err := <-server.Done():
		return exitcode.With(exitcode.IO, err)
	case <-ctx.Done():
		return server.Close()
	}
}

// follow draws runs on a terminal until ctx ends; on what is none, once and without colour.
func follow(ctx context.Context, out *os.File, sources []dashboard.Source) error {
	runs, err := dashboard.OpenAll(sources)
	if err != nil {
		return err
	}
	// Not a terminal: one picture.
	width, height, ok := screenOf(out)
	if !ok {
		_, err := fmt.Fprint(out, dashboard.Screen(runs, 80, 12, time.Now(), false))
		return exitcode.With(exitcode.IO, err)
	}
	// Drawn again when something may have changed, in the size that the terminal has now.
	for {
		text := dashboard.Screen(runs, width, max(3, (height-28)/2), time.Now(), os.Getenv("NO_COLOR") == "")
		if _, err := fmt.Fprintf(out, "\x1b[H\x1b[2J%s", text); err != nil {
			return exitcode.With(exitcode.IO, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(redraw):
		}
		if runs, err = dashboard.Renewed(runs); err != nil {
			return err
		}
		if w, h, ok := screenOf(out); ok {
			width, height = w, h
		}
	}
}

// screenOf is the size of a terminal that takes orders; ok is false for anything else. One that
// does not know its size, as a serial line, is 80 columns of 24 lines.
func screenOf(out *os.File) (width, height int, ok bool) {
	width, height, err := term.GetSize(int(out.Fd()))
	if err != nil || os.Getenv("TERM") == "dumb" {
		return 0, 0, false
	}
	if width == 0 || height == 0 {
		return 80, 24, true
	}
	return width, height, true
}

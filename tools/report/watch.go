package report

import (
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"monotron/fault"
	"monotron/megatron/dashboard"
	"monotron/notes"
	"monotron/tools/internal/command"
)

const watchDescription = `The page of report, which gets new steps by itself; also of runs that have ended. The run
knows nothing of it: only its files are read. --addr with another address than this
machine's own shows the page to whoever reaches it. pretrain_gpt --dashboard-addr serves the
same page out of the run.`

// WatchCommand is watch.
func WatchCommand() *cli.Command {
	return command.Wrap(&cli.Command{
		Name:        "watch",
		Usage:       "a run, or several, as a page that follows them",
		ArgsUsage:   "FOLDER...",
		Description: watchDescription,
		Flags:       []cli.Flag{&cli.StringFlag{Name: "addr", Value: "127.0.0.1:8080", Usage: "`ADDRESS` to serve the page at"}, price()},
		Action: func(c *cli.Context) error {
			if c.Args().Len() == 0 {
				return fault.Errorf(fault.Usage, "which run? Give its folder, or those of several")
			}
			sources, err := sources(c, c.Args().Slice(), false)
			if err != nil {
				return err
			}
			return watch(c, sources)
		},
	})
}

// watch serves the page of some runs until a signal.
func watch(c *cli.Context, sources []dashboard.Source) error {
	ctx, stop := signal.NotifyContext(c.Context, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if _, err := dashboard.OpenAll(sources); err != nil {
		return err // now, not when somebody looks
	}
	server, err := dashboard.Serve(c.String("addr"), sources)
	if err != nil {
		return fault.Errorf(fault.Usage, "--addr %s: %w", c.String("addr"), err)
	}
	notes.Stderr().From("watch").Info("the page is at http://%s/ until Ctrl-C", server.Addr())
	select {
	case err := <-server.Done():
		return fault.With(fault.IO, err)
	case <-ctx.Done():
		return server.Close()
	}
}

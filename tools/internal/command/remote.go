package command

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/internal/store"
	"monotron/megatron/checkpoint/remote"
)

// Local is the path to read a checkpoint from: the given one, or for an s3:// URL a folder of
// this host, to which the checkpoint is fetched.
func Local(c *cli.Context, path string, step int64) (string, error) {
	notes := &Printer{W: c.App.ErrWriter}
	path, err := remote.Local(c.Context, path, step, func(text string) { notes.Printf("%s\n", text) })
	if err != nil {
		return path, err
	}
	return path, notes.Err
}

// fetchLoad has --load be a folder where it is an s3:// URL.
func fetchLoad(c *cli.Context) error {
	name := c.String("load")
	if !store.IsURL(name) {
		return nil
	}
	if c.Bool("follow") {
		return exitcode.Errorf(exitcode.Usage, "--follow works only with folders; with --load %s leave --follow out, or load the folder of the run's --save-local-dir", name)
	}
	dir, err := Local(c, name, c.Int64("ckpt-step"))
	if err != nil {
		return fmt.Errorf("--load: %w", err)
	}
	return exitcode.With(exitcode.Internal, c.Set("load", dir))
}

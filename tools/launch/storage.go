package launch

import (
	"os"
	"time"

	"monotron/internal/exitcode"
)

// storageLimit is how long the folder of --save may take to answer.
const storageLimit = 30 * time.Second

// checkStorage writes a file into the folder of --save and removes it: a start that could neither
// read nor save a checkpoint would only fail later. A folder that nobody has made yet is not
// checked.
func (o *options) checkStorage() error {
	if o.saves == "" {
		return nil
	}
	if _, err := os.Stat(o.staged); os.IsNotExist(err) {
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- tryStorage(o.staged) }()
	var err error
	select {
	case err = <-done:
	case <-time.After(storageLimit):
		err = exitcode.Errorf(exitcode.IO, "the disk has not answered for %v", storageLimit)
	}
	if err != nil {
		return exitcode.Errorf(exitcode.IO, "the ranks of this host are not restarted, because the host cannot write to --save %s: %w; repair the disk or its mount, and run the same command again", o.saves, err)
	}
	return nil
}

func tryStorage(folder string) error {
	f, err := os.CreateTemp(folder, ".tmp-probe-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err = f.Write(make([]byte, 4096)); err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

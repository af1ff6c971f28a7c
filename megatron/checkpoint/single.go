package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"monotron/internal/exitcode"
)

// Single makes the file path by write, which gives it its name only when it is
// complete. A path that exists is refused; after an error nothing is left.
func Single(path string, write func() error) error {
	if _, err := os.Lstat(path); err == nil {
		return exitcode.Errorf(exitcode.Usage, "%s already exists; choose another output", path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return exitcode.With(exitcode.IO, err)
	}
	made, err := mkdirAll(filepath.Dir(filepath.Clean(path)))
	if err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	err = write()
	if err != nil {
		for _, dir := range made {
			_ = os.Remove(dir) // only where nothing else came into it
		}
	}
	return err
}

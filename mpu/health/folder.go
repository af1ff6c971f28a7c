package health

import (
	"errors"
	"os"
	"path/filepath"

	"monotron/internal/exitcode"
)

// Fresh makes a run's folder, its owner's alone, and moves what an earlier run has
// left there to a folder of its own inside (before_1 and so on).
func Fresh(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return exitcode.Errorf(exitcode.IO, "--run-folder %s: %w", folder, err)
	}
	// What an earlier run left: verdict, flight recorders, dumped tensors.
	var left []string
	for _, pattern := range []string{"verdict.json", "flight_*.bin", "nonfinite_*"} {
		found, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			return exitcode.With(exitcode.Internal, err)
		}
		left = append(left, found...)
	}
	if len(left) == 0 {
		return nil
	}
	// The first free number; another process may take one at the same moment.
	for n := 1; ; n++ {
		old := filepath.Join(folder, "before_"+itoa(n))
		err := os.Mkdir(old, 0o700)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		for _, path := range left {
			if err == nil {
				err = os.Rename(path, filepath.Join(old, filepath.Base(path)))
			}
		}
		return exitcode.With(exitcode.IO, err)
	}
}

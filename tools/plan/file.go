package plan

import (
	"errors"
	"os"
	"path/filepath"

	"monotron/fault"
)

// writeFile gives content its name only once it is safe on the disk.
func writeFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return fault.Errorf(fault.IO, "%s cannot be written: %w", path, err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fault.Errorf(fault.IO, "%s cannot be written: %w", path, err)
	}
	return nil
}

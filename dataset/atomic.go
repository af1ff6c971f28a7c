package dataset

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"

	"monotron/fault"
)

// newFile is a file that has its final name only once it is complete: written
// under a temporary name in the same folder, synced, then renamed.
type newFile struct {
	*bufio.Writer
	file *os.File
	path string
}

func createFile(path string) (*newFile, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if os.IsNotExist(err) {
		return nil, fault.Errorf(fault.NoInput, "%s: the folder does not exist", path)
	}
	if err != nil {
		return nil, fault.With(fault.IO, err)
	}
	return &newFile{bufio.NewWriterSize(f, 1<<20), f, path}, nil
}

// sync makes the content safe under the temporary name.
func (n *newFile) sync() error {
	err := errors.Join(n.Flush(), n.file.Chmod(0o644), n.file.Sync(), n.file.Close())
	if err != nil {
		return fault.Errorf(fault.IO, "%s: %w", n.path, err)
	}
	return nil
}

// publish gives a synced file its name.
func (n *newFile) publish() error {
	if err := os.Rename(n.file.Name(), n.path); err != nil {
		return fault.With(fault.IO, err)
	}
	return nil
}

// abort removes the temporary file; after publish it does nothing.
func (n *newFile) abort() {
	n.file.Close()
	os.Remove(n.file.Name())
}

// syncDir makes renames in a folder last. Some file systems cannot; then the
// rename itself is all there is.
func syncDir(path string) {
	if d, err := os.Open(path); err == nil {
		_ = d.Sync()
		d.Close()
	}
}

// WriteFile writes data to path in that way.
func WriteFile(path string, data ...[]byte) error {
	n, err := createFile(path)
	if err != nil {
		return err
	}
	defer n.abort()
	for _, d := range data {
		if _, err := n.Write(d); err != nil {
			return fault.Errorf(fault.IO, "%s: %w", path, err)
		}
	}
	if err := n.sync(); err != nil {
		return err
	}
	return n.publish()
}

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"monotron/internal/exitcode"
)

// Folder makes the folder path: fill writes files into a temporary one, each brought to
// disk by fill; their names are brought there here. After an error nothing is left.
func Folder(path string, fill func(tmp string) error) error { return folder(path, fill, os.Rename) }

// ReplaceFolder is Folder for a path that may be a folder already, which is removed when the new one is
// complete. At every moment one of the two has the name, or the older one is at aside, in the same folder.
func ReplaceFolder(path, aside string, fill func(tmp string) error) error {
	return folder(path, fill, func(tmp, path string) error { return Replace(names{}, tmp, path, aside) })
}

// Names changes the names of folders.
type Names interface {
	Rename(from, to string) error
	// Exchange is Exchange, also in its error.
	Exchange(a, b string) error
	Remove(path string) error
}

// names are those of the file system.
type names struct{}

func (names) Rename(from, to string) error { return os.Rename(from, to) }
func (names) Exchange(a, b string) error   { return Exchange(a, b) }
func (names) Remove(path string) error     { return os.RemoveAll(path) }

// Replace gives a complete folder the name path, in place of an older one if there is one. At every
// moment one of the two has the name, or the older one is at aside.
func Replace(n Names, made, path, aside string) error {
	if _, err := os.Lstat(path); err != nil {
		return n.Rename(made, path)
	}
	switch err := n.Exchange(made, path); {
	case err == nil:
		return n.Remove(made)
	case !errors.Is(err, errors.ErrUnsupported):
		return err
	}
	if err := n.Rename(path, aside); err != nil {
		return err
	}
	if err := n.Rename(made, path); err != nil {
		_ = n.Rename(aside, path) // the error before it is the one to tell
		return err
	}
	return n.Remove(aside)
}

// folder fills a temporary folder, which publish then gives the name path.
func folder(path string, fill func(tmp string) error, publish func(tmp, path string) error) error {
	tmp := Temporary(path)
	err := os.Mkdir(tmp, 0o777)
	if err == nil {
		err = fill(tmp)
	}
	if err == nil {
		err = syncTree(tmp)
	}
	if err == nil {
		err = publish(tmp, path)
	}
	if err != nil {
		_ = os.RemoveAll(tmp) // the error before it is the one to tell
		return ofFill(path, err)
	}
	return SyncFolder(filepath.Dir(filepath.Clean(path)))
}

// Exchange exchanges the names of two folders in one step. Where the file system cannot, the
// error is errors.ErrUnsupported.
func Exchange(a, b string) error {
	err := exchange(a, b)
	if errors.Is(err, syscall.EINVAL) {
		return errors.ErrUnsupported
	}
	return err
}

// Publish gives what was made and brought to disk under another name its own.
func Publish(made, path string) error {
	if err := os.Rename(made, path); err != nil {
		return failed(path, err)
	}
	return SyncFolder(filepath.Dir(filepath.Clean(path)))
}

// SyncFolder brings the names in a folder to disk, where its file system has a way.
func SyncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	err = f.Sync()
	_ = f.Close() // opened for reading
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil // it keeps names in its own way
	}
	return exitcode.With(exitcode.IO, err)
}

func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		return SyncFolder(path)
	})
}

package formats

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"monotron/fault"
	"monotron/megatron/formats/bulk"
)

// tmpPrefix marks what is being written; native saves clean it up after a kill.
const tmpPrefix = ".tmp-"

// Folder makes the folder path: fill writes everything into a temporary folder
// beside it, which gets its name when it is whole and on disk. A path that
// exists is refused; after an error nothing is left.
func Folder(ctx context.Context, path string, fill func(tmp string) error) error {
	if _, err := os.Lstat(path); err == nil {
		return fault.Errorf(fault.Usage, "%s exists; name an output that does not", path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fault.With(fault.IO, err)
	}
	parent := filepath.Dir(filepath.Clean(path))
	made, err := mkdirAll(parent)
	if err != nil {
		return fault.With(fault.IO, err)
	}
	tmp := filepath.Join(parent, tmpPrefix+filepath.Base(path)+"-"+token())
	err = fillFolder(ctx, tmp, path, fill)
	if err != nil {
		for _, dir := range made {
			_ = os.Remove(dir) // only where nothing else came into it
		}
	}
	return err
}

func fillFolder(ctx context.Context, tmp, path string, fill func(tmp string) error) error {
	err := os.Mkdir(tmp, 0o777)
	if err == nil {
		err = fill(tmp)
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = syncTree(tmp)
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.RemoveAll(tmp) // the error before it is the one to tell
		return ioFault(err)
	}
	return ioFault(syncDir(filepath.Dir(path)))
}

// ioFault gives an error that has no code yet that of trouble with a disk.
func ioFault(err error) error {
	if err == nil || fault.CodeOf(err) != fault.Internal {
		return err
	}
	return fault.With(fault.IO, err)
}

// mkdirAll makes dir and what is above it; made lists the new ones, deepest first.
func mkdirAll(dir string) (made []string, err error) {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil || filepath.Dir(at) == at {
			break
		}
		made = append(made, at)
	}
	return made, os.MkdirAll(dir, 0o777)
}

// Iteration puts one checkpoint, the folder name (iter_0000003, release), into
// a save folder and then names it in the tracker. A new save folder appears as
// a whole.
func Iteration(ctx context.Context, save string, t Tracked, fill func(tmp string) error) error {
	tracker := []byte(t.Text())
	if _, err := os.Lstat(save); errors.Is(err, fs.ErrNotExist) {
		return Folder(ctx, save, func(tmp string) error {
			if err := os.Mkdir(filepath.Join(tmp, t.Folder()), 0o777); err != nil {
				return err
			}
			if err := fill(filepath.Join(tmp, t.Folder())); err != nil {
				return err
			}
			return WriteFile(filepath.Join(tmp, TrackerName), func(w io.Writer) error { _, err := w.Write(tracker); return err })
		})
	}
	if err := Folder(ctx, filepath.Join(save, t.Folder()), fill); err != nil {
		return err
	}
	tmp := filepath.Join(save, tmpPrefix+TrackerName+"-"+token())
	err := WriteFile(tmp, func(w io.Writer) error { _, err := w.Write(tracker); return err })
	if err == nil {
		err = os.Rename(tmp, filepath.Join(save, TrackerName))
	}
	if err != nil {
		_ = os.Remove(tmp)
		return ioFault(err)
	}
	return ioFault(syncDir(save))
}

// Text is what a tracker file says.
func (t Tracked) Text() string {
	if t.Release {
		return ReleaseName
	}
	return fmt.Sprint(t.Iteration)
}

// WriteFile makes a new file with what write puts into it, on disk when it
// returns.
func WriteFile(path string, write func(w io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return ioFault(err)
	}
	out := bulk.NewFile(f)
	err = write(out)
	if err == nil {
		err = out.Sync()
	}
	if closing := out.Close(); err == nil {
		err = closing
	}
	return ioFault(err)
}

func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		return syncDir(path)
	})
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func token() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%d-%s", os.Getpid(), hex.EncodeToString(b[:]))
}

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/internal/parallelio"
)

// Folder makes the folder path: fill writes everything into a temporary folder
// next to it, which gets its name when it is complete and on disk. A path that
// exists is refused; after an error nothing is left.
func Folder(ctx context.Context, path string, fill func(tmp string) error) error {
	if _, err := os.Lstat(path); err == nil {
		return exitcode.Errorf(exitcode.Usage, "%s already exists; choose another output", path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return exitcode.With(exitcode.IO, err)
	}
	return folder(ctx, path, fill, atomicfile.Folder)
}

// folder makes the folder path by create, and what is above it.
func folder(ctx context.Context, path string, fill func(tmp string) error, create func(path string, fill func(tmp string) error) error) error {
	made, err := mkdirAll(filepath.Dir(filepath.Clean(path)))
	if err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	err = create(path, func(tmp string) error {
		if err := fill(tmp); err != nil {
			return err
		}
		return context.Cause(ctx)
	})
	if err != nil {
		for _, dir := range made {
			_ = os.Remove(dir) // only where nothing else came into it
		}
	}
	return ioFault(err)
}

// ioFault gives an error that has no code yet that of trouble with a disk.
func ioFault(err error) error {
	if err == nil || exitcode.CodeOf(err) != exitcode.Internal {
		return err
	}
	return exitcode.With(exitcode.IO, err)
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
// a save folder and then names it in the tracker. A new save folder appears
// complete. ofRun: the run that saves to the folder calls; else it is
// an Addition, about which there may be a note.
func Iteration(ctx context.Context, save string, t Tracked, ofRun bool, fill func(tmp string) error) (note string, err error) {
	if ofRun {
		return "", saved(ctx, save, t, fill)
	}
	if _, err := os.Lstat(save); errors.Is(err, fs.ErrNotExist) {
		return "", saved(ctx, save, t, fill)
	}
	a, err := Add(save, t)
	if err != nil {
		return "", err
	}
	err = Folder(ctx, filepath.Join(save, t.Folder()), fill)
	if err == nil {
		err = a.point()
	}
	note, _ = a.Later()
	return note, errors.Join(err, a.Close(err))
}

// saved is Iteration where the tracker names the checkpoint in any case, and a checkpoint of that
// iteration is replaced: a run that continued from an earlier one has come to it again.
func saved(ctx context.Context, save string, t Tracked, fill func(tmp string) error) error {
	tracker := []byte(t.Text())
	if _, err := os.Lstat(save); errors.Is(err, fs.ErrNotExist) {
		return Folder(ctx, save, func(tmp string) error {
			if err := os.Mkdir(filepath.Join(tmp, t.Folder()), 0o777); err != nil {
				return err
			}
			if err := fill(filepath.Join(tmp, t.Folder())); err != nil {
				return err
			}
			return atomicfile.WriteFile(filepath.Join(tmp, TrackerName), 0o666, tracker)
		})
	}
	err := folder(ctx, filepath.Join(save, t.Folder()), fill, func(path string, fill func(tmp string) error) error {
		return atomicfile.ReplaceFolder(path, filepath.Join(save, AsidePrefix+t.Folder()), fill)
	})
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(save, TrackerName), 0o666, tracker)
}

// Text is what a tracker file says.
func (t Tracked) Text() string {
	if t.Release {
		return ReleaseName
	}
	return fmt.Sprint(t.Iteration)
}

// WriteFile makes a file with the bytes that write puts into it.
func WriteFile(path string, write func(w io.Writer) error) error {
	return ioFault(atomicfile.Write(path, 0o666, func(f *os.File) error {
		return parallelio.Fill(f, func(file *parallelio.File) error { return write(file) })
	}))
}

package native

import (
	"errors"
	"os"
	"path/filepath"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/internal/parallelio"
	"monotron/internal/system"
)

// disk makes every change of the file system that a save makes. Tests hand in
// fail to stop a save at any step.
type disk struct {
	fail func(op, path string) error // nil: nothing fails
}

func (d disk) do(op, path string, change func() error) error {
	var err error
	if d.fail != nil {
		err = d.fail(op, path)
	}
	if err == nil {
		err = change()
	}
	if err != nil {
		var inner *os.PathError
		if errors.As(err, &inner) {
			err = inner.Err // the path is said once, here
		}
		return exitcode.Errorf(exitcode.IO, "checkpoint: cannot %s %s: %w", op, path, err)
	}
	return nil
}

func (d disk) mkdir(path string) error {
	return d.do("make", path, func() error { return os.Mkdir(path, 0o777) })
}

// Remove removes a folder or a file.
func (d disk) Remove(path string) error {
	return d.do("remove", path, func() error { return os.RemoveAll(path) })
}

// Rename gives a folder or a file another name.
func (d disk) Rename(from, to string) error {
	return d.do("rename to", to, func() error { return os.Rename(from, to) })
}

// Exchange is atomicfile.Exchange.
func (d disk) Exchange(a, b string) error {
	return d.do("exchange", b, func() error { return atomicfile.Exchange(a, b) })
}

// sync makes the names in a folder durable.
func (d disk) sync(dir string) error {
	return d.do("sync", dir, func() error { return atomicfile.SyncFolder(dir) })
}

// output is a file being written.
type output struct {
	d    disk
	path string
	f    *parallelio.File
}

// Write is write for an io.Writer.
func (o *output) Write(b []byte) (int, error) {
	if err := o.write(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (o *output) write(b []byte) error {
	return o.d.do("write", o.path, func() error {
		_, err := o.f.Write(b)
		return err
	})
}

// take is write without a copy where that is possible.
func (o *output) take(b []byte, back func()) error {
	return o.d.do("write", o.path, func() error { return o.f.Take(b, back) })
}

// make appends some of n bytes, which fill writes directly into the buffer. An error of
// fill's is returned as it is.
func (o *output) make(n int64, fill func(dst []byte) error) (done int64, err error) {
	var dst []byte
	if err := o.d.do("write", o.path, func() error {
		dst, err = o.f.Space(int(n))
		return err
	}); err != nil {
		return 0, err
	}
	if err := fill(dst); err != nil {
		return 0, err
	}
	o.f.Commit(len(dst))
	return int64(len(dst)), nil
}

// file writes a new file; fill appends to it. It is on disk when file returns.
func (d disk) file(path string, fill func(out *output) error) error {
	var f *parallelio.File
	err := d.do("create", path, func() error {
		file, err := atomicfile.Scratch(path, 0o666)
		if err != nil {
			return err
		}
		if err = file.Truncate(0); err != nil {
			return errors.Join(err, file.Close())
		}
		f = parallelio.NewFile(file)
		return nil
	})
	if err != nil {
		return err
	}
	err = fill(&output{d, path, f})
	if err == nil {
		err = d.do("sync", path, f.Sync)
	}
	closed := d.do("close", path, f.Close)
	if err != nil {
		return err
	}
	return closed
}

// text writes a new file that holds content.
func (d disk) text(path string, content []byte) error {
	return d.file(path, func(out *output) error { return out.write(content) })
}

// replace gives path new contents in one step.
func (d disk) replace(path string, content []byte, tag string) error {
	tmp := filepath.Join(filepath.Dir(path), tmpPrefix+filepath.Base(path)+"-"+tag)
	err := d.text(tmp, content)
	if err == nil {
		err = d.Rename(tmp, path)
	}
	if err != nil {
		_ = d.Remove(tmp) // the error before it is the one to tell
		return err
	}
	return d.sync(filepath.Dir(path))
}

// checkSpace checks that need bytes are free where dir lies.
func (d disk) checkSpace(dir string, iteration, need int64) error {
	total, free, err := system.DiskSpace(dir)
	if err != nil || total == 0 || need <= free {
		return nil // nothing known, or enough: writing will tell
	}
	return exitcode.Errorf(exitcode.IO, "checkpoint: iteration %d needs %d bytes in %s, but only %d are free; free some space, keep fewer checkpoints (--keep-last) or save to another disk",
		iteration, need, dir, free)
}

package atomicfile

import (
	"errors"
	"os"
	"syscall"

	"monotron/internal/exitcode"
	"monotron/internal/system"
)

// Scratch opens a file for reading and writing whose name others can foresee, as one that a later
// process continues; it makes the file where it is missing and keeps what is in it. A symbolic
// link, a second name of another file, or anything but a regular file at that name is an error:
// someone may have put it there to have another file overwritten.
func Scratch(path string, perm os.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|system.NoFollow|syscall.O_NONBLOCK, perm)
	if errors.Is(err, syscall.ELOOP) {
		return nil, exitcode.Errorf(exitcode.IO, "%s is a symbolic link; remove it", path)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = exitcode.Errorf(exitcode.IO, "%s is not a regular file; remove it", path)
	default:
		if system.Links(info) > 1 {
			err = exitcode.Errorf(exitcode.IO, "%s is a hard link to another file; remove it", path)
		}
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

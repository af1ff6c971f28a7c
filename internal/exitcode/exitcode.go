package exitcode

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
)

// Code is a process exit code.
type Code int

const (
	Done     Code = 0  // finished, also by --exit-interval
	Differs  Code = 1  // a comparison failed
	Usage    Code = 2  // wrong flag or impossible combination
	BadData  Code = 65 // input exists but is malformed
	NoInput  Code = 66 // input is missing
	Internal Code = 70 // our mistake
	IO       Code = 74 // reading, writing or checkpoint trouble
	Again    Code = 75 // stopped by signal or time limit after saving: run me again
)

type coded struct {
	code Code
	err  error
}

func (c *coded) Error() string { return worded(c.err.Error()) }
func (c *coded) Unwrap() error { return c.err }

// Errorf is fmt.Errorf with an exit code. The text says what, where (file,
// line, byte, flag, rank, tensor) and what to do.
func Errorf(code Code, format string, args ...any) error {
	return &coded{code, fmt.Errorf(format, args...)}
}

// With gives err an exit code; nil stays nil.
func With(code Code, err error) error {
	if err == nil {
		return nil
	}
	return &coded{code, err}
}

// CodeOf is the exit code of err: that of the outermost coded error in its
// chain, Internal where there is none, Done for nil. BadData is IO where a disk's
// error is in the chain: a file that could not be read is not a malformed one.
func CodeOf(err error) Code {
	if err == nil {
		return Done
	}
	var c *coded
	switch {
	case !errors.As(err, &c):
		return Internal
	case c.code == BadData && ofDisk(err):
		return IO
	}
	return c.code
}

// broken are the system's errors of a disk, a file system or a server of files that
// fails. They say nothing about what a file holds.
var broken = []error{syscall.EIO, syscall.ESTALE, syscall.ENXIO, syscall.ENODEV, syscall.ETIMEDOUT, syscall.EBADMSG, syscall.ENOTCONN}

// ofDisk reports whether err comes from a read that failed, whatever its reader took it for.
func ofDisk(err error) bool {
	return slices.ContainsFunc(broken, func(e error) bool { return errors.Is(err, e) })
}

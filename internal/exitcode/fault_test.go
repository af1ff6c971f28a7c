package exitcode

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"
)

// Claim: a read that fails is IO whatever its reader took it for; every other error keeps
// the code of the outermost one that has any.
func TestDiskErrorsAreNotBadData(t *testing.T) {
	read := func(no syscall.Errno) error { return &os.PathError{Op: "read", Path: "x", Err: no} }
	for _, c := range []struct {
		err  error
		want Code
	}{
		{Errorf(BadData, "x: %w", read(syscall.EIO)), IO},
		{fmt.Errorf("y: %w", Errorf(BadData, "x: %w", With(NoInput, read(syscall.ESTALE)))), IO},
		{Errorf(BadData, "x: %w", read(syscall.EISDIR)), BadData},
		{Errorf(BadData, "x: %w", fs.ErrNotExist), BadData},
		{Errorf(Usage, "x: %w", read(syscall.EIO)), Usage},
		{Errorf(BadData, "x: %w", With(IO, fs.ErrInvalid)), BadData},
		{read(syscall.EIO), Internal},
		{nil, Done},
	} {
		if got := CodeOf(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

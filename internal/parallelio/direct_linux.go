package parallelio

import (
	"os"

	"golang.org/x/sys/unix"
)

// pastCache lets transfers of a file go past the page cache, or through it again.
func pastCache(f *os.File, on bool) error {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if flags &^= unix.O_DIRECT; on {
		flags |= unix.O_DIRECT
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags)
	return err
}

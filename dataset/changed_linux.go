package dataset

import (
	"io/fs"
	"syscall"
	"time"
)

// changed is when a file's content or name last changed: a file renamed to its final name
// may be older than what it replaced.
func changed(info fs.FileInfo) time.Time {
	t := info.ModTime()
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		if c := time.Unix(s.Ctim.Unix()); c.After(t) {
			return c
		}
	}
	return t
}

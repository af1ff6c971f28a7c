//go:build !linux

package dataset

import (
	"io/fs"
	"time"
)

// changed is when a file's content last changed.
func changed(info fs.FileInfo) time.Time { return info.ModTime() }

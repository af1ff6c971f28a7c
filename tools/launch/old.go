package launch

import (
	"os"
	"path/filepath"
	"time"

	"monotron/internal/atomicfile"
)

// Temporary folders of runs that failed are kept for a week: long enough to read a verdict.
const (
	temporaryName = "monotron-run-"
	keptFor       = 7 * 24 * time.Hour
)

// lock holds the folder of this run, so that no other launcher removes it, however long the
// run takes. The lock ends with the process.
func (o *options) lock() (release func()) {
	f, err := os.Open(o.folder)
	if err != nil {
		return func() {}
	}
	_, _ = atomicfile.Lock(f) // a file system without locks: its age alone protects the folder
	return func() { f.Close() }
}

// removeOld removes the temporary folders of runs that ended over a week ago. What cannot be
// removed, as another user's, stays.
func removeOld(now time.Time) {
	all, err := filepath.Glob(filepath.Join(os.TempDir(), temporaryName+"[0-9]*"))
	if err != nil {
		return
	}
	for _, folder := range all {
		info, err := os.Lstat(folder)
		if err != nil || !info.IsDir() || now.Sub(info.ModTime()) < keptFor {
			continue
		}
		f, err := os.Open(folder)
		if err != nil {
			continue
		}
		if locked, _ := atomicfile.Lock(f); !locked {
			os.RemoveAll(folder)
		}
		f.Close()
	}
}

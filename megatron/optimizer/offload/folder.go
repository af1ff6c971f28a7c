package offload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"monotron/csrc/device"
	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
)

// Folder is the files of one rank.
type Folder struct {
	dir   string
	rank  int
	lock  *os.File
	files []*File
}

// handover is how long a rank waits for another one to leave its files: a killed run's
// processes may still be ending when its successor starts.
const handover = 3 * time.Second

// Open makes dir where it is not there, takes the rank's files in it for this run, and takes
// away what killed runs of more than `world` ranks have left.
func Open(dir string, rank, world int) (*Folder, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, exitcode.Errorf(exitcode.IO, "--offload-folder %s: %w", dir, err)
	}
	f := &Folder{dir: dir, rank: rank}
	for end := time.Now().Add(handover); ; time.Sleep(50 * time.Millisecond) {
		locked, err := f.take(f.name("lock"))
		switch {
		case err != nil:
			return nil, exitcode.Errorf(exitcode.IO, "--offload-folder %s: %w", dir, err)
		case !locked:
			f.sweep()
			f.clean(world)
			return f, nil
		case time.Now().After(end):
			return nil, exitcode.Errorf(exitcode.IO, "--offload-folder %s: another run uses the files of rank %d in this folder; wait until that run has ended, or choose another folder", dir, rank)
		}
	}
}

func (f *Folder) name(what string) string {
	return filepath.Join(f.dir, fmt.Sprintf("rank_%05d.%s", f.rank, what))
}

// take locks the file of that name for this run; locked: another run has it, or has just released it.
func (f *Folder) take(path string) (locked bool, err error) {
	lock, err := atomicfile.Scratch(path, 0o666)
	if err != nil {
		return false, err
	}
	locked, err = atomicfile.Lock(lock)
	if err != nil { // a file system that knows no locks
		locked = false
	}
	here, gone := os.Stat(path)
	mine, err := lock.Stat()
	if locked || err != nil || gone != nil || !os.SameFile(here, mine) {
		_ = lock.Close() // nothing was written
		return true, nil
	}
	f.lock = lock
	return false, nil
}

// clean takes away files of ranks that this run does not have, unless they are somebody's.
func (f *Folder) clean(world int) {
	locks, _ := filepath.Glob(filepath.Join(f.dir, "rank_*.lock")) // the pattern is one
	for _, path := range locks {
		var rank int
		if _, err := fmt.Sscanf(filepath.Base(path), "rank_%d.lock", &rank); err != nil || rank < world {
			continue
		}
		old := &Folder{dir: f.dir, rank: rank}
		if locked, err := old.take(path); err == nil && !locked {
			old.sweep()
			_ = old.Close() // others' remains: this run can do without knowing
		}
	}
}

// sweep removes the rank's files but for its lock.
func (f *Folder) sweep() {
	all, _ := filepath.Glob(f.name("*")) // the pattern is one
	for _, path := range all {
		if !strings.HasSuffix(path, ".lock") {
			_ = os.Remove(path) // the next attempt to make it reports what is wrong
		}
	}
}

// Store makes the file of a purpose, full of zeros.
func (f *Folder) Store(purpose string, bytes int64) (device.Store, error) {
	file, err := create(f.name(purpose), f.rank, bytes)
	if err != nil {
		return nil, err
	}
	f.files = append(f.files, file)
	return file, nil
}

// Close takes the rank's files away.
func (f *Folder) Close() error {
	if f == nil || f.lock == nil {
		return nil
	}
	var all []error
	for _, file := range f.files {
		all = append(all, file.close(), os.Remove(file.path))
	}
	all = append(all, os.Remove(f.name("lock")), f.lock.Close())
	f.files, f.lock = nil, nil
	return exitcode.With(exitcode.IO, errors.Join(all...))
}

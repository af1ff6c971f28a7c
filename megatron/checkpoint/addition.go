package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
)

// Addition is a save folder to which a conversion adds a checkpoint. It never replaces one: a run
// may still need it, or it is the input. Until Close no run and no other conversion saves there.
type Addition struct {
	save  string
	lock  *os.File // nil: the file system has no locks
	made  []string // folders that were made for it, deepest first
	t     Tracked
	later *Tracked // what the folder loads now, if that is later than t
}

// handover is how long a conversion waits for whoever saves to the folder.
const handover = 3 * time.Second

// Add makes the save folder, new or not, ready for t. It refuses a path that is a file or a
// checkpoint itself, and a folder that has t already.
func Add(save string, t Tracked) (a *Addition, err error) {
	if st, err := os.Stat(save); err == nil && !st.IsDir() {
		return nil, exitcode.Errorf(exitcode.Usage, "%s already exists and is a file; choose another output", save)
	}
	a = &Addition{save: save, t: t}
	if a.made, err = mkdirAll(filepath.Clean(save)); err != nil {
		return nil, exitcode.With(exitcode.IO, err)
	}
	if err = a.hold(); err == nil {
		err = a.check()
	}
	if err != nil {
		return nil, errors.Join(err, a.Close(err))
	}
	return a, nil
}

// hold takes the lock that a run has while it saves to the folder.
func (a *Addition) hold() error {
	f, err := os.Open(a.save)
	if err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	for end := time.Now().Add(handover); ; time.Sleep(50 * time.Millisecond) {
		switch locked, err := atomicfile.Lock(f); {
		case err != nil:
			return f.Close()
		case !locked:
			a.lock = f
			return nil
		case time.Now().After(end):
			_ = f.Close() // it holds nothing
			return exitcode.Errorf(exitcode.IO, "%s: a run or another conversion is saving to this folder; wait until it has ended, or choose another output", a.save)
		}
	}
}

// check refuses what would be replaced or hidden, and finds what the folder loads now.
func (a *Addition) check() error {
	// A checkpoint that is not one of several: what is added would hide it, or be hidden by it.
	format, itself := detectFolder(a.save)
	inside := iterations(a.save)
	if !itself && len(inside) == 0 {
		found, err := Detect(a.save)
		format, itself = found, err == nil
	}
	if itself {
		return exitcode.Errorf(exitcode.Usage, "%s already exists and is a single checkpoint (%s), not a folder of checkpoints; choose another output", a.save, format)
	}
	// One of the same name, which a killed save may have moved aside.
	for _, prefix := range []string{"", AsidePrefix} {
		path := filepath.Join(a.save, prefix+a.t.Folder())
		if _, err := os.Lstat(path); err == nil {
			return exitcode.Errorf(exitcode.Usage, "%s already exists; choose another output", path)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return exitcode.With(exitcode.IO, err)
		}
	}
	if now, has := loaded(a.save, inside); has && a.t.before(now) {
		a.later = &now
	}
	return nil
}

// loaded is what a save folder with these checkpoints loads: the tracker's, else the newest.
func loaded(save string, inside []string) (now Tracked, has bool) {
	if t, err := ReadTracker(save); err == nil && slices.Contains(inside, t.Folder()) {
		return t, true
	}
	for _, name := range inside {
		t, ok := trackedOf(name)
		if ok && (!has || now.before(t)) {
			now, has = t, true
		}
	}
	return now, has
}

// trackedOf is what a folder's name means; ok is false for other names.
func trackedOf(name string) (t Tracked, ok bool) {
	if name == ReleaseName {
		return Tracked{Release: true}, true
	}
	_, err := fmt.Sscanf(name, IterPrefix+"%d", &t.Iteration)
	return t, err == nil && t.Folder() == name
}

// before reports whether t is of an earlier point than u; a release is before all iterations.
func (t Tracked) before(u Tracked) bool {
	return !u.Release && (t.Release || t.Iteration < u.Iteration)
}

// Later reports whether the folder loads a later checkpoint than the added one, which the tracker
// must still name afterwards; the note says so.
func (a *Addition) Later() (note string, later bool) {
	if a.later == nil {
		return "", false
	}
	how := "give the path of its folder to load it"
	if !a.t.Release {
		how = fmt.Sprintf("use --ckpt-step %d to load the added one", a.t.Iteration)
	}
	return fmt.Sprintf("a run with --load %s still loads iteration %d, which is later than the added %s; %s", a.save, a.later.Iteration, a.t.Folder(), how), true
}

// point names the added checkpoint in the tracker, if the folder loads no later one.
func (a *Addition) point() error {
	if a.later != nil {
		return nil
	}
	return atomicfile.WriteFile(filepath.Join(a.save, TrackerName), 0o666, []byte(a.t.Text()))
}

// Close gives the folder free; after a failure it also removes the folders that Add has made.
func (a *Addition) Close(failed error) (err error) {
	if a.lock != nil {
		err = a.lock.Close()
	}
	if failed != nil {
		for _, dir := range a.made {
			_ = os.Remove(dir) // only where nothing else came into it
		}
	}
	return exitcode.With(exitcode.IO, err)
}

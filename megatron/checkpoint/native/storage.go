package native

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
)

const (
	trackerName = checkpoint.TrackerName
	iterPrefix  = "iter_"
	tmpPrefix   = atomicfile.Prefix // being written, or being removed
	oldPrefix   = checkpoint.AsidePrefix
)

// ErrNone is in the chain of Load's and Latest's error when a folder has no
// checkpoint at all: a new run may start.
var ErrNone = errors.New("no checkpoint found")

// processTag distinguishes what this process is writing from what a dead one left.
var processTag = func() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%d-%s", os.Getpid(), hex.EncodeToString(b[:]))
}()

func iterName(iteration int64) string { return fmt.Sprintf("%s%07d", iterPrefix, iteration) }

// iteration reads a folder's name; ok is false for other names.
func iteration(name string) (n int64, ok bool) {
	digits, ok := strings.CutPrefix(name, iterPrefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil && n >= 0 && iterName(n) == name
}

// Entry is a checkpoint of a save folder; only reading shows whether it is sound.
type Entry struct {
	Iteration int64
	Path      string
}

// List names the checkpoints of dir, oldest first.
func List(dir string) ([]Entry, error) {
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, exitcode.Errorf(exitcode.NoInput, "%s is a file, but must be a folder; give the folder of a model or of its checkpoints", dir)
	}
	if err != nil {
		return nil, exitcode.Errorf(exitcode.IO, "checkpoint: %w", err)
	}
	found := map[int64]string{}
	for _, e := range names {
		name := e.Name()
		aside := strings.HasPrefix(name, oldPrefix)
		n, ok := iteration(strings.TrimPrefix(name, oldPrefix))
		if ok && (!aside || found[n] == "") {
			found[n] = filepath.Join(dir, name)
		}
	}
	var list []Entry
	for n, path := range found {
		list = append(list, Entry{n, path})
	}
	sort.Slice(list, func(a, b int) bool { return list[a].Iteration < list[b].Iteration })
	return list, nil
}

// readable lists what can be loaded from dir: the checkpoints of a save folder,
// or the one that dir itself is, whatever its name.
func readable(dir string) ([]Entry, error) {
	if !IsOne(dir) {
		return List(dir)
	}
	e := Entry{Path: dir}
	if m, err := readManifest(dir); err == nil { // opening it reports what is wrong with it
		e.Iteration = m.State.Iteration
	}
	return []Entry{e}, nil
}

// IsOne reports whether dir is one checkpoint, and no folder of them.
func IsOne(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, manifestName))
	return err == nil
}

// readTracker is the iteration that the tracker file names.
func readTracker(dir string) (int64, error) {
	t, err := checkpoint.ReadTracker(dir)
	if err == nil && t.Release {
		err = fmt.Errorf("%s names a release, not an iteration", filepath.Join(dir, trackerName))
	}
	return t.Iteration, err
}

// Latest is the iteration that Load takes first: the tracker's, or the newest
// folder's where the tracker is of no use. Without any it is ErrNone.
func Latest(dir string) (int64, error) {
	order, _, err := candidates(dir)
	if err != nil {
		return 0, err
	}
	return order[0].Iteration, nil
}

// candidates orders the checkpoints of dir as Load tries them: the tracker's,
// then older ones, newest first, then those that are newer than the tracker
// says. notes tell what is odd.
func candidates(dir string) (order []Entry, notes []string, err error) {
	list, err := readable(dir)
	if err != nil {
		return nil, nil, err
	}
	if len(list) == 1 && list[0].Path == dir {
		return list, nil, nil
	}
	if len(list) == 0 {
		return nil, nil, exitcode.With(exitcode.NoInput, fmt.Errorf("checkpoint: %s: %w (no folder such as %s0000100)", dir, ErrNone, iterPrefix))
	}
	top := list[len(list)-1].Iteration
	if n, err := readTracker(dir); err == nil {
		top = n
	} else {
		notes = append(notes, fmt.Sprintf("checkpoint: %v; the newest folder is used", err))
	}
	split := sort.Search(len(list), func(i int) bool { return list[i].Iteration > top })
	for i := split - 1; i >= 0; i-- {
		order = append(order, list[i])
	}
	order = append(order, list[split:]...)
	if order[0].Iteration != top {
		notes = append(notes, fmt.Sprintf("checkpoint: %s names iteration %d, which does not exist", filepath.Join(dir, trackerName), top))
	}
	return order, notes, nil
}

// Clean removes from a save folder what killed saves left, whatever format they
// wrote, but for what bears this run's tag. Save does so by itself.
func Clean(dir, tag string) error { return disk{}.clean(dir, tag) }

// clean removes what killed saves left and puts back a checkpoint that was
// moved aside by one.
func (d disk) clean(dir, tag string) error {
	names, err := os.ReadDir(dir)
	if err != nil {
		return exitcode.Errorf(exitcode.IO, "checkpoint: %w", err)
	}
	for _, e := range names {
		name := e.Name()
		path := filepath.Join(dir, name)
		switch {
		case unfinished(name) && !strings.HasSuffix(name, "-"+tag):
			err = d.Remove(path)
		case strings.HasPrefix(name, oldPrefix+iterPrefix):
			err = d.putBack(path, filepath.Join(dir, strings.TrimPrefix(name, oldPrefix)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unfinished reports whether a name in a save folder is that of a save under way or killed.
// Other files may be made there at the same time, such as a profile.
func unfinished(name string) bool {
	of, made := strings.CutPrefix(name, tmpPrefix)
	return made && slices.ContainsFunc([]string{iterPrefix, checkpoint.ReleaseName, checkpoint.TrackerName, "native-", "probe-"},
		func(what string) bool { return strings.HasPrefix(of, what) })
}

func (d disk) putBack(old, name string) error {
	if _, err := os.Lstat(name); err == nil {
		return d.Remove(old)
	}
	return d.Rename(old, name)
}

// publish gives a finished folder its name, in place of an older one if there is one, which may be
// next to it as .old- meanwhile.
func (d disk) publish(tmp, final string) error {
	return atomicfile.Replace(d, tmp, final, filepath.Join(filepath.Dir(final), oldPrefix+filepath.Base(final)))
}

// point names an iteration in the tracker.
func (d disk) point(dir string, iteration int64, tag string) error {
	return d.replace(filepath.Join(dir, trackerName), []byte(fmt.Sprint(iteration)), tag)
}

// Adopt gives a complete checkpoint that was made in dir under the name tmp its own name. It
// replaces an older one of that iteration.
func Adopt(dir, tmp string, iteration int64) error {
	if err := (disk{}).publish(filepath.Join(dir, tmp), filepath.Join(dir, iterName(iteration))); err != nil {
		return err
	}
	return disk{}.sync(dir)
}

// Point names an iteration of dir as that which is loaded first.
func Point(dir string, iteration int64) error { return disk{}.point(dir, iteration, processTag) }

// Path is the folder of an iteration of dir.
func Path(dir string, iteration int64) string { return filepath.Join(dir, iterName(iteration)) }

// Partial is a name in a save folder for a checkpoint of the iteration that is being made;
// the next save removes what is left of one.
func Partial(iteration int64) string { return tmpPrefix + iterName(iteration) + "-" + processTag }

// Iteration reads the name of a checkpoint's folder; ok is false for other names.
func Iteration(name string) (n int64, ok bool) { return iteration(name) }

// foreign reports whether a folder holds another program's checkpoint, which is not
// ours to remove.
func foreign(path string) bool {
	f, err := checkpoint.Detect(path)
	return err == nil && f != checkpoint.Native
}

// prune removes checkpoints older than the newest o.KeepLast sound ones, but those
// of iterations divisible by o.KeepEvery, and o.Keep. The checkpoint just written is the first of
// the kept; newer ones, of a run that was rewound, stay. KeepLast 0 keeps all.
func (d disk) prune(dir string, written int64, o SaveOptions) (removed []int64, err error) {
	if o.KeepLast <= 0 {
		return nil, nil
	}
	list, err := List(dir)
	if err != nil {
		return nil, err
	}
	// From the newest: only checkpoints that can be opened count as kept.
	kept := 1
	for i := len(list) - 1; i >= 0; i-- {
		e := list[i]
		if e.Iteration >= written || foreign(e.Path) {
			continue
		}
		if kept < o.KeepLast {
			if f, err := OpenFolder(e.Path); err == nil {
				f.Close()
				kept++
			}
			continue
		}
		if e.Iteration == o.Keep || o.KeepEvery > 0 && e.Iteration%o.KeepEvery == 0 {
			continue
		}
		// The name goes first, so that no half removed folder bears it.
		gone := filepath.Join(dir, tmpPrefix+filepath.Base(e.Path)+"-"+o.Tag)
		if err := d.Rename(e.Path, gone); err != nil {
			return removed, err
		}
		if err := d.Remove(gone); err != nil {
			return removed, err
		}
		removed = append(removed, e.Iteration)
	}
	return removed, nil
}

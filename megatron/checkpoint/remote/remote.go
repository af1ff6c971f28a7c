package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/store"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/native"
)

// Remote is a save folder in a store.
type Remote struct {
	KeepLast  int   // checkpoints to keep, the new one included; 0: all
	KeepEvery int64 // iterations divisible by it are kept for good; 0: none
	Keep      int64 // a further iteration that is kept; 0: none

	store store.Store
	left  *string // the tracker as this run knows it, "" where there was none; nil: not read yet
}

// New is the save folder that s is.
func New(s store.Store) *Remote { return &Remote{store: s} }

// Open is the save folder at an s3:// URL. Nothing is sent.
func Open(name string) (*Remote, error) {
	s, err := store.Connect(name, store.Options{})
	if err != nil {
		return nil, err
	}
	return New(s), nil
}

// version is a folder in which an iteration was saved, or began to be.
type version struct {
	iteration int64
	number    int    // 1 for iter_N, K for iter_N.K
	folder    string // with a slash at its end
	sizes     map[string]int64
}

func versionName(iteration int64, number int) string {
	name := checkpoint.IterPrefix + fmt.Sprintf("%07d", iteration)
	if number > 1 {
		name += "." + strconv.Itoa(number)
	}
	return name + "/"
}

// complete distinguishes a checkpoint from an unfinished one.
func (v *version) complete() bool {
	_, has := v.sizes[checkpoint.ManifestName]
	return has
}

// readVersion reads a folder's name, without its slash; ok is false for other names.
func readVersion(name string) (v version, ok bool) {
	folder, digits, numbered := strings.Cut(name, ".")
	if v.iteration, ok = native.Iteration(folder); !ok {
		return v, false
	}
	v.number = 1
	if numbered {
		n, err := strconv.Atoi(digits)
		if err != nil || n < 2 || strconv.Itoa(n) != digits {
			return v, false
		}
		v.number = n
	}
	v.folder, v.sizes = name+"/", map[string]int64{}
	return v, true
}

// versions lists all there are, by iteration and number.
func (r *Remote) versions(ctx context.Context) ([]version, error) {
	objects, err := r.store.List(ctx, checkpoint.IterPrefix)
	if err != nil {
		return nil, err
	}
	var list []version
	at := map[string]int{}
	for _, o := range objects {
		folder, name, inside := strings.Cut(o.Key, "/")
		v, ok := readVersion(folder)
		if !inside || !ok {
			continue // not ours
		}
		i, seen := at[folder]
		if !seen {
			i = len(list)
			at[folder] = i
			list = append(list, v)
		}
		list[i].sizes[name] = o.Size
	}
	slices.SortFunc(list, func(a, b version) int {
		if a.iteration != b.iteration {
			return int(min(max(a.iteration-b.iteration, -1), 1))
		}
		return a.number - b.number
	})
	return list, nil
}

// checkpoints are the complete versions that count, one of each iteration, oldest first.
func checkpoints(all []version) (list []version) {
	for _, v := range all {
		if !v.complete() {
			continue
		}
		if n := len(list); n > 0 && list[n-1].iteration == v.iteration {
			list[n-1] = v
			continue
		}
		list = append(list, v)
	}
	return list
}

// readTracker is the tracker's text and object, both zero where there is none.
func (r *Remote) readTracker(ctx context.Context) (string, store.Object, error) {
	const most = 100
	text, o, err := store.ReadAll(ctx, r.store, checkpoint.TrackerName, most)
	if errors.Is(err, fs.ErrNotExist) {
		return "", store.Object{}, nil
	}
	return strings.TrimSpace(string(text)), o, err
}

// Start inspects the store before a run saves: uploads that a killed run has left are
// aborted, and another run that saves meanwhile will be noticed. It returns how many uploads.
func (r *Remote) Start(ctx context.Context) (aborted int, err error) {
	if aborted, err = r.store.Abort(ctx, checkpoint.IterPrefix); err != nil {
		return aborted, err
	}
	text, _, err := r.readTracker(ctx)
	r.left = &text
	return aborted, err
}

// point names the iteration in the tracker, unless another run has written there.
func (r *Remote) point(ctx context.Context, iteration int64) error {
	text, o, err := r.readTracker(ctx)
	if err != nil {
		return err
	}
	if r.left != nil && *r.left != text {
		return r.taken(text)
	}
	want, when := fmt.Sprint(iteration), store.IfAbsent
	if text == want {
		r.left = &want
		return nil
	}
	if o.ETag != "" {
		when = store.IfMatch(o.ETag)
	}
	_, err = store.PutBytes(ctx, r.store, checkpoint.TrackerName, []byte(want), when)
	if errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrChanged) {
		return r.taken("another iteration")
	}
	if err == nil {
		r.left = &want
	}
	return err
}

func (r *Remote) taken(now string) error {
	left := "this file did not exist when this run began"
	if r.left != nil && *r.left != "" {
		left = "this run wrote " + *r.left + " to it"
	}
	return exitcode.Errorf(exitcode.IO, "checkpoint: %s now names %s, but %s, so another run saves to the same URL; stop one of the runs, or give one of them a different --save", r.store.Name(checkpoint.TrackerName), now, left)
}

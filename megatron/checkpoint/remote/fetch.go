package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/internal/store"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/native"
)

// leaseName is a file in the local folder, of the process that fetches.
const leaseName = ".fetching"

// Fetched says what Fetch has done.
type Fetched struct {
	Iteration int64
	Bytes     int64    // that travelled; 0: the local folder had it
	Notes     []string // what was damaged or odd
}

// Fetch brings a checkpoint into the local save folder dir and names it in dir's tracker;
// step -1 is the latest. Where that turns out to be damaged the next older one is taken, as in native.Load.
// One process of those that share dir fetches; waiting is called meanwhile in the others.
// A step that does not exist is exitcode.NoInput; if no checkpoint exists at all,
// native.ErrNone is in the chain.
func (r *Remote) Fetch(ctx context.Context, dir string, step int64, waiting func()) (Fetched, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return Fetched{}, exitcode.With(exitcode.IO, err)
	}
	lease := atomicfile.NewLease(filepath.Join(dir, leaseName), func() bool { return ctx.Err() != nil }, waiting)
	defer lease.End()
	const tries = 3 // a run that keeps few checkpoints may remove what is being fetched
	for n := 1; ; n++ {
		f, err := r.fetch(ctx, dir, step)
		if n < tries && errors.Is(err, fs.ErrNotExist) && !errors.Is(err, native.ErrNone) && exitcode.CodeOf(err) == exitcode.NoInput && ctx.Err() == nil {
			continue
		}
		return f, err
	}
}

func (r *Remote) fetch(ctx context.Context, dir string, step int64) (f Fetched, err error) {
	order, err := r.candidates(ctx, step, &f)
	if err != nil {
		return f, err
	}
	for _, v := range order {
		n, err := r.bring(ctx, dir, v)
		f.Bytes += n
		var damage *native.Damage
		if step < 0 && errors.As(err, &damage) {
			f.Notes = append(f.Notes, fmt.Sprintf("checkpoint: %s is damaged: %v", r.store.Name(v.folder), err))
			continue
		}
		if err != nil {
			return f, err
		}
		f.Iteration = v.iteration
		return f, native.Point(dir, v.iteration)
	}
	return f, exitcode.Errorf(exitcode.IO, "checkpoint: no undamaged checkpoint in %s:\n%s", r.store.Name(""), strings.Join(f.Notes, "\n"))
}

// candidates are the checkpoints in the order in which they are tried: the tracker's, older
// ones, then newer ones.
func (r *Remote) candidates(ctx context.Context, step int64, f *Fetched) (order []version, err error) {
	all, err := r.versions(ctx)
	if err != nil {
		return nil, err
	}
	list := checkpoints(all)
	if len(list) == 0 {
		return nil, exitcode.With(exitcode.NoInput, fmt.Errorf("checkpoint: %s: %w (no object iter_N/%s)", r.store.Name(""), native.ErrNone, checkpoint.ManifestName))
	}
	// The one that was asked for.
	if step >= 0 {
		for _, v := range list {
			if v.iteration == step {
				return []version{v}, nil
			}
		}
		return nil, exitcode.Errorf(exitcode.NoInput, "checkpoint: %s has no iteration %d; it has %s", r.store.Name(""), step, iterations(list))
	}
	// The tracker's; without it the newest.
	top := list[len(list)-1].iteration
	text, _, err := r.readTracker(ctx)
	if err != nil {
		return nil, err
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		top = n
	} else {
		f.Notes = append(f.Notes, fmt.Sprintf("checkpoint: %s does not name an iteration (%q); the newest iteration is used", r.store.Name(checkpoint.TrackerName), text))
	}
	// Older ones from there, then newer ones, of a run that was rewound.
	var newer []version
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].iteration <= top {
			order = append(order, list[i])
		} else {
			newer = append([]version{list[i]}, newer...)
		}
	}
	return append(order, newer...), nil
}

func iterations(list []version) string {
	names := make([]string, len(list))
	for i, v := range list {
		names[i] = fmt.Sprint(v.iteration)
	}
	return strings.Join(names, ", ")
}

// bring has the version in dir: it is there already with the same manifest, or is fetched,
// checked and put in place. It returns the bytes that travelled.
func (r *Remote) bring(ctx context.Context, dir string, v version) (int64, error) {
	manifest, _, err := store.ReadAll(ctx, r.store, v.folder+checkpoint.ManifestName, maxManifest)
	if err != nil {
		return 0, err
	}
	if sound(native.Path(dir, v.iteration), manifest) {
		return 0, nil
	}
	partial := native.Partial(v.iteration)
	tmp := filepath.Join(dir, partial)
	if err := os.Mkdir(tmp, 0o777); err != nil {
		return 0, exitcode.With(exitcode.IO, err)
	}
	defer os.RemoveAll(tmp) // nothing is left of it where it was adopted
	bytes, err := r.download(ctx, v, tmp)
	if err != nil {
		return bytes, err
	}
	if err := atomicfile.WriteFile(filepath.Join(tmp, checkpoint.ManifestName), 0o666, manifest); err != nil {
		return bytes, err
	}
	if err := verify(tmp, v); err != nil {
		return bytes, err
	}
	return bytes, native.Adopt(dir, partial, v.iteration)
}

// sound reports whether a local checkpoint has this manifest and files of its sizes; loading
// it checks their bytes.
func sound(folder string, manifest []byte) bool {
	is, err := exitcode.ReadFile(filepath.Join(folder, checkpoint.ManifestName), maxManifest)
	if err != nil || !bytes.Equal(is, manifest) {
		return false
	}
	f, err := native.OpenFolder(folder)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// download writes all files of the version but its manifest to the folder tmp.
func (r *Remote) download(ctx context.Context, v version, tmp string) (total int64, err error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2) // each reads several ranges at a time
	for _, name := range sorted(v.sizes) {
		path := filepath.FromSlash(name)
		if name == checkpoint.ManifestName || !filepath.IsLocal(path) || strings.HasPrefix(filepath.Base(path), ".") {
			continue
		}
		total += v.sizes[name]
		group.Go(func() error {
			if err := os.MkdirAll(filepath.Join(tmp, filepath.Dir(path)), 0o777); err != nil {
				return exitcode.With(exitcode.IO, err)
			}
			_, err := store.Fetch(ctx, r.store, v.folder+name, filepath.Join(tmp, path))
			return err
		})
	}
	return total, group.Wait()
}

// verify checks every byte against the manifest.
func verify(folder string, v version) error {
	f, err := native.OpenFolder(folder)
	if err != nil {
		return err
	}
	defer f.Close()
	if is := f.Manifest.State.Iteration; is != v.iteration {
		return exitcode.With(exitcode.IO, &native.Damage{Path: folder, Reason: fmt.Sprintf("the manifest is from iteration %d, not from iteration %d", is, v.iteration)})
	}
	return f.Verify()
}

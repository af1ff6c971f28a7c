package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"monotron/internal/exitcode"
	"monotron/internal/store"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/native"
)

// maxManifest is more than native reads of one.
const maxManifest = 1 << 32

// Save copies a complete local checkpoint, which nothing may change meanwhile. When it
// returns without error the checkpoint was read back and is what the tracker names, and
// what KeepLast does not keep is removed. After an error the checkpoints before are as they were,
// or, where only removing failed, the new one is there too.
func (r *Remote) Save(ctx context.Context, folder string) error {
	iteration, ok := native.Iteration(filepath.Base(folder))
	if !ok {
		return exitcode.Errorf(exitcode.Internal, "checkpoint: internal error: %s does not have the name of an iteration's folder; report this, and include the command line", folder)
	}
	// What an earlier process left unfinished is known before anything is sent.
	if r.left == nil {
		if _, err := r.Start(ctx); err != nil {
			return err
		}
	}
	// The manifest is read before the files are sent, and sent after them.
	files, err := localFiles(folder)
	if err != nil {
		return err
	}
	manifest, err := exitcode.ReadFile(filepath.Join(folder, checkpoint.ManifestName), maxManifest)
	if err != nil {
		return err
	}
	all, err := r.versions(ctx)
	if err != nil {
		return err
	}
	v, there, err := r.chooseVersion(ctx, all, iteration, files, manifest)
	if err != nil {
		return err
	}
	// A complete version of the same content is not sent again.
	if !there {
		if err := r.send(ctx, v, folder, files, manifest); err != nil {
			return err
		}
	}
	if err := r.point(ctx, iteration); err != nil {
		return err
	}
	return r.prune(ctx, v)
}

// localFiles are the sizes of all files of a checkpoint but its manifest, by their names with slashes.
func localFiles(folder string) (map[string]int64, error) {
	sizes := map[string]int64{}
	err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if name = filepath.ToSlash(name); err == nil && name != checkpoint.ManifestName {
			sizes[name] = st.Size()
		}
		return err
	})
	return sizes, exitcode.With(exitcode.IO, err)
}

// chooseVersion chooses the version to write: that of an upload that was not completed, else a new
// one, for a checkpoint is never changed. there: the last one has this content already.
func (r *Remote) chooseVersion(ctx context.Context, all []version, iteration int64, files map[string]int64, manifest []byte) (v version, there bool, err error) {
	next := 1
	for _, old := range all {
		if old.iteration != iteration {
			continue
		}
		v, next = old, old.number+1
	}
	switch {
	case next == 1: // the first
	case !v.complete():
		next = v.number
	default:
		is, _, err := store.ReadAll(ctx, r.store, v.folder+checkpoint.ManifestName, maxManifest)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return v, false, err
		}
		if err == nil && bytes.Equal(is, manifest) && v.lacks(files) == "" {
			return v, true, nil
		}
	}
	name := versionName(iteration, next)
	return version{iteration: iteration, number: next, folder: name}, false, nil
}

// lacks names a file that is not there or has another size, "" where all are.
func (v *version) lacks(files map[string]int64) string {
	for name, size := range files {
		if is, has := v.sizes[name]; !has || is != size {
			return name
		}
	}
	return ""
}

// send writes the files, then the manifest, and reads back.
func (r *Remote) send(ctx context.Context, v version, folder string, files map[string]int64, manifest []byte) error {
	for _, name := range sorted(files) {
		if _, err := store.Send(ctx, r.store, filepath.Join(folder, filepath.FromSlash(name)), v.folder+name, store.When{}); err != nil {
			return err
		}
	}
	if err := r.readBack(ctx, v, files, false); err != nil {
		return err
	}
	key := v.folder + checkpoint.ManifestName
	if _, err := store.PutBytes(ctx, r.store, key, manifest, store.IfAbsent); err != nil {
		if errors.Is(err, store.ErrExists) {
			return exitcode.Errorf(exitcode.IO, "checkpoint: %s was written by another run in the meantime; stop one of the runs, or give one of them a different --save", r.store.Name(key))
		}
		return err
	}
	is, _, err := store.ReadAll(ctx, r.store, key, maxManifest)
	if err != nil {
		return err
	}
	if !bytes.Equal(is, manifest) {
		return exitcode.Errorf(exitcode.IO, "checkpoint: %s: the bytes read back differ from those written; report this to the operator of the store", r.store.Name(key))
	}
	return r.readBack(ctx, v, files, true)
}

func sorted(files map[string]int64) []string {
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// readBack lists what the version holds now. Objects of an earlier upload that are not part of
// it are removed before it is complete.
func (r *Remote) readBack(ctx context.Context, v version, files map[string]int64, complete bool) error {
	objects, err := r.store.List(ctx, v.folder)
	if err != nil {
		return err
	}
	v.sizes = map[string]int64{}
	for _, o := range objects {
		name := o.Key[len(v.folder):]
		v.sizes[name] = o.Size
		if _, ours := files[name]; !ours && name != checkpoint.ManifestName && !complete {
			if err := r.store.Delete(ctx, o.Key); err != nil {
				return err
			}
		}
	}
	what := v.lacks(files)
	if what == "" && complete != v.complete() {
		what = checkpoint.ManifestName
	}
	if what != "" {
		return exitcode.Errorf(exitcode.IO, "checkpoint: %s is not what was written (%s); another run may have changed it, or the store may have lost it; save again",
			r.store.Name(v.folder+what), sizeOf(v, what))
	}
	return nil
}

func sizeOf(v version, name string) string {
	if size, has := v.sizes[name]; has {
		return fmt.Sprintf("%d bytes are listed", size)
	}
	return "it is not listed"
}

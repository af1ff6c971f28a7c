package remote

import (
	"context"
	"fmt"
	"path/filepath"

	"monotron/internal/exitcode"
	"monotron/internal/store"
)

// Folder is the local folder in which checkpoints of an s3:// URL are made and to which they
// are fetched: chosen, or where that is empty one in the user's cache. Nothing is made.
func Folder(name, chosen string) (string, error) {
	at, err := store.Parse(name)
	if err != nil || chosen != "" {
		return chosen, err
	}
	cache, err := store.CacheFolder("checkpoints")
	if err != nil {
		return "", exitcode.Errorf(exitcode.Usage, "%s: %w; or give --save-local-dir", name, err)
	}
	return filepath.Join(cache, at.Bucket, filepath.FromSlash(at.Prefix)), nil
}

// Local is the folder to read a checkpoint from: name itself, or for an s3:// URL this host's folder, to which the
// checkpoint was fetched. tell gets what there is to say; it may be nil.
func Local(ctx context.Context, name string, step int64, tell func(text string)) (string, error) {
	if !store.IsURL(name) {
		return name, nil
	}
	dir, err := Folder(name, "")
	if err != nil {
		return "", err
	}
	return dir, FetchTo(ctx, name, dir, step, tell)
}

// FetchTo is Fetch from an s3:// URL, with what there is to say.
func FetchTo(ctx context.Context, name, dir string, step int64, tell func(text string)) error {
	r, err := Open(name)
	if err != nil {
		return err
	}
	f, err := r.Fetch(ctx, dir, step, func() {})
	if tell == nil {
		return err
	}
	for _, n := range f.Notes {
		tell(n)
	}
	if err == nil && f.Bytes > 0 {
		tell(fmt.Sprintf("downloaded iteration %d of %s to %s (%d bytes)", f.Iteration, name, dir, f.Bytes))
	}
	return err
}

package remote

import (
	"context"

	"monotron/megatron/checkpoint"
)

// prune keeps written, which is the tracker's, and removes what need not be kept: unfinished
// versions, versions that another of their iteration has replaced, and checkpoints that are
// older than the newest KeepLast. Checkpoints of later iterations, of a run that was rewound, stay.
func (r *Remote) prune(ctx context.Context, written version) error {
	all, err := r.versions(ctx)
	if err != nil {
		return err
	}
	// written counts as the first of KeepLast.
	keep := map[string]bool{written.folder: true}
	kept := 1
	list := checkpoints(all)
	for i := len(list) - 1; i >= 0; i-- {
		v := list[i]
		switch {
		case v.iteration == written.iteration:
		case v.iteration > written.iteration, r.KeepLast <= 0:
			keep[v.folder] = true
		case kept < r.KeepLast:
			kept++
			keep[v.folder] = true
		case v.iteration == r.Keep, r.KeepEvery > 0 && v.iteration%r.KeepEvery == 0:
			keep[v.folder] = true
		}
	}
	// Everything else goes, unfinished versions too.
	for _, v := range all {
		if keep[v.folder] {
			continue
		}
		if err := r.remove(ctx, v); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a version, its manifest first: the rest is then not a checkpoint.
func (r *Remote) remove(ctx context.Context, v version) error {
	if v.complete() {
		if err := r.store.Delete(ctx, v.folder+checkpoint.ManifestName); err != nil {
			return err
		}
	}
	for _, name := range sorted(v.sizes) {
		if name == checkpoint.ManifestName {
			continue
		}
		if err := r.store.Delete(ctx, v.folder+name); err != nil {
			return err
		}
	}
	return nil
}

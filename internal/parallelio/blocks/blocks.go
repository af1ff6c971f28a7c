// Package blocks makes parts of files several at a time, within a bound on
// memory, and hands them out or writes them in order.
package blocks

import (
	"cmp"
	"context"
	"os"
	"slices"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/internal/parallelio"
)

// Block is a part of a file.
type Block struct {
	Offset, Bytes int64
	Fill          func(dst []byte) error // may run at the same time as others'
}

// Step is how many rows of a size make a part of about limit: all where they are not
// much more, for parts of a transposed tensor cost reads of all of it; else even shares.
func Step(rows, row, limit int64) int64 {
	most := max(1, limit/max(1, row))
	if rows <= most+most/2 {
		return max(1, rows)
	}
	parts := (rows + most - 1) / most
	return (rows + parts - 1) / parts
}

// Head is a block of existing bytes.
func Head(offset int64, raw []byte) Block {
	return Block{offset, int64(len(raw)), func(dst []byte) error { copy(dst, raw); return nil }}
}

// Write makes the file path, which has its name only when it is complete and on
// disk; after an error nothing of it is left. Gaps between blocks read as zeros.
func Write(ctx context.Context, path string, list []Block) (size int64, err error) {
	list = slices.SortedFunc(slices.Values(list), func(a, b Block) int { return cmp.Compare(a.Offset, b.Offset) })
	err = atomicfile.Write(path, 0o666, func(f *os.File) error {
		return parallelio.Fill(f, func(file *parallelio.File) (err error) {
			size, err = write(ctx, file, list)
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	return size, nil
}

// write writes each block at its offset, behind zeros where the one before ends
// earlier. A file goes to disk from its start to its end.
func write(ctx context.Context, file *parallelio.File, list []Block) (at int64, err error) {
	tasks, offsets := make([]Task, len(list)), make([]int64, len(list))
	for i, b := range list {
		tasks[i], offsets[i] = Task{b.Bytes, b.Fill}, b.Offset
	}
	q := Ahead(ctx, tasks, offsets)
	defer q.Stop()
	for _, b := range list {
		raw, back, err := q.Next()
		if err != nil {
			return 0, err
		}
		if b.Offset < at {
			return 0, exitcode.Errorf(exitcode.Internal, "internal error: the block at byte %d overlaps the block before it; report this, and include the command line", b.Offset)
		}
		if _, err := file.Write(make([]byte, b.Offset-at)); err != nil {
			return 0, err
		}
		if err := file.Take(raw, back); err != nil {
			return 0, err
		}
		at = b.Offset + b.Bytes
	}
	return at, nil
}

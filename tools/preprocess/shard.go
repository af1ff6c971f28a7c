package preprocess

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"monotron/dataset/jsonl"
	"monotron/internal/argv"
	"monotron/internal/exitcode"
)

// mostShards bounds N of --shard I/N.
const mostShards = 1 << 20

// setShard keeps the shard of the inputs that --shard I/N asks for: of all bytes of the files, the I-th
// of N equal stretches. A line belongs to the stretch that has its first byte, a packed file likewise.
func (o *options) setShard(text string) error {
	first, last, _ := strings.Cut(text, "/")
	i, err := strconv.ParseInt(first, 10, 64)
	n, err2 := strconv.ParseInt(last, 10, 64)
	if err != nil || err2 != nil || i < 1 || i > n || n > mostShards {
		return exitcode.Errorf(exitcode.Usage, "--shard %s is not of the form I/N, as in 3/8; I must be from 1 to N, and N at most %d", argv.Shown(text), mostShards)
	}
	// Sizes of all files.
	var total int64
	sizes := make([]int64, len(o.inputs))
	for f, path := range o.inputs {
		info, err := os.Stat(path)
		if err != nil {
			return exitcode.With(exitcode.IO, err)
		}
		if !info.Mode().IsRegular() {
			return exitcode.Errorf(exitcode.Usage, "--shard needs regular files, but %s is not a regular file; give files", path)
		}
		sizes[f] = info.Size()
		total += sizes[f]
	}
	// The stretch of this shard, file by file.
	low, high := stretch(total, i-1, n), stretch(total, i, n)
	all, begin := o.inputs, int64(0)
	o.inputs = nil
	for f, path := range all {
		part, has, err := partOf(path, sizes[f], low-begin, high-begin)
		if err != nil {
			return err
		}
		if begin += sizes[f]; has {
			o.inputs, o.parts = append(o.inputs, path), append(o.parts, part)
		}
	}
	if len(o.inputs) == 0 {
		return exitcode.Errorf(exitcode.Usage, "--shard %s: no line begins in this shard; use fewer shards", text)
	}
	o.prefix += fmt.Sprintf("_%0*dof%d", len(last), i, n)
	return nil
}

// stretch is where the i-th of n stretches begins.
func stretch(total, i, n int64) int64 { return total/n*i + total%n*i/n }

// partOf is what a stretch [low, high) of bytes, counted from the file's start, has of the file.
func partOf(path string, size, low, high int64) (part jsonl.Part, has bool, err error) {
	if high <= 0 || low >= size {
		return part, false, nil
	}
	packed, err := jsonl.Packed(path)
	if err != nil || packed {
		return part, packed && low <= 0, err
	}
	if part.From, err = jsonl.LineStart(path, low); err != nil {
		return part, false, err
	}
	if part.To = size; high < size {
		part.To, err = jsonl.LineStart(path, high)
	}
	return part, part.From < part.To, err
}

package preprocess

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/dataset/jsonl"
	"monotron/internal/exitcode"
)

// tried is how much text of each input a dry run encodes.
const tried = 8 << 20

// try is --dry-run: what would be read and written, from the first lines of each
// input. Nothing is written.
func (o *options) try(c *cli.Context) error {
	if o.format != "jsonl" {
		return exitcode.Errorf(exitcode.Usage, "--dry-run needs JSON lines, not --input-format %s", o.format)
	}
	e := &encoder{options: o, parser: jsonl.NewParser(o.keys...)}
	var docs, tokens, bad, text, packed, total int64
	start := time.Now()
	// The first lines of each input, encoded and not written.
	for file, path := range o.inputs {
		s := &source{options: o}
		r, err := s.open(file)
		if err != nil {
			return err
		}
		for begun := text; text-begun < tried; {
			j := &job{keys: make([]encoded, len(o.keys))}
			if j.block, err = r.Next(nil); err != nil {
				break
			}
			if e.block(j); j.failed != nil {
				err = j.failed
				break
			}
			docs, bad, text = docs+j.docs, bad+int64(len(j.bad)), text+int64(len(j.block.Data))
			for _, k := range j.keys {
				tokens += int64(len(k.raw) / o.dtype.Size())
			}
		}
		packed += r.Consumed()
		if closed := r.Close(); err == nil || err == io.EOF {
			err = closed
		}
		if err != nil {
			return err
		}
		if info, err := os.Stat(path); err == nil {
			total += info.Size()
		}
	}
	// From the share of the input that was tried to all of it.
	share := 1.0
	if packed > 0 {
		share = max(1, float64(total)/float64(packed))
	}
	seconds := time.Since(start).Seconds() * share / float64(o.workers)
	w := c.App.Writer
	fmt.Fprintf(w, "inputs      %d, %s\ntried       %s of text: %d documents, %d tokens, %d lines that cannot be read\n", len(o.inputs), size(total), size(text), docs, tokens, bad)
	fmt.Fprintf(w, "estimate    %.0f documents, %.0f tokens of %s, %s, %s with %d workers\n", float64(docs)*share, float64(tokens)*share, o.dtype,
		size(int64(float64(tokens)*share)*int64(o.dtype.Size())), time.Duration(seconds*float64(time.Second)).Round(time.Second), o.workers)
	// What would be written, and whether it can be.
	for _, key := range o.keys {
		is := "new"
		if _, err := os.Stat(o.joined(key) + ".bin"); err == nil {
			is = "existing files would be replaced"
		}
		fmt.Fprintf(w, "output      %s.bin (%s)\n", o.joined(key), is)
	}
	if _, err := os.Stat(o.folder()); err != nil {
		return exitcode.Errorf(exitcode.NoInput, "%s: the folder does not exist", o.folder())
	}
	return nil
}

package convert

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/gguf"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/checkpoint/peft"
	"monotron/megatron/training"
	"monotron/tools/internal/command"
)

// merge adds the adapter of --adapter, and those that the input has itself, to the weights; an
// input without any is src itself. done ends the reading of the adapter's files.
func (o *options) merge(src checkpoint.Source, notes *command.Printer) (merged checkpoint.Source, done func() error, err error) {
	info, nothing := src.Info(), func() error { return nil }
	switch n := len(info.Model.Adapters); {
	case o.adapter != "":
		return o.mergeFolder(src, notes)
	case o.split != "" && n == 0:
		return nil, nil, exitcode.Errorf(exitcode.Usage, "--split-adapter %s: %s has no adapter; leave the flag out", o.split, info.Path)
	case o.split != "":
		return peft.Bare(src), nothing, nil
	case n > 0:
		notes.Printf("merging the %d adapted modules of %s\n", n, info.Path)
	}
	return peft.MergeOwn(src), nothing, nil
}

// splitOff writes the input's own adapter to --split-adapter, if that is given.
func (o *options) splitOff(ctx context.Context, src checkpoint.Source, notes *command.Printer) error {
	if o.split == "" {
		return nil
	}
	info := src.Info()
	if err := checkpoint.Folder(ctx, o.split, func(tmp string) error { return training.WriteAdapter(tmp, src) }); err != nil {
		return fmt.Errorf("--split-adapter: %w", interrupted(ctx, err))
	}
	notes.Printf("wrote the adapter of %[2]s to %[1]s, for PEFT; the output has the weights without the adapter\n", o.split, info.Path)
	if r := info.Model.Retrained; r != nil {
		notes.Printf("note: %d weights were trained in full with the adapter, the first of which is %s; both the output and the adapter have their trained values\n", len(r.Names), r.Names[0])
	}
	return nil
}

// mergeFolder is merge of --adapter.
func (o *options) mergeFolder(src checkpoint.Source, notes *command.Printer) (merged checkpoint.Source, done func() error, err error) {
	src = peft.MergeOwn(src)
	f, err := peft.Open(o.adapter, src.Info().Model, src.Info().Family)
	if err != nil {
		return nil, nil, err
	}
	notes.Printf("merging %d adapted modules of %s\n", len(f.Adapters), o.adapter)
	if o.over != "" {
		rounded, err := o.rounded(src, f, notes)
		if err != nil {
			_ = f.Close() // only read
			return nil, nil, err
		}
		if o.intoRounded {
			src = rounded
		}
	}
	return peft.Merge(src, f), f.Close, nil
}

// rounded is src as --adapter-over says that the adapter was trained over it, and reports the distance.
func (o *options) rounded(src checkpoint.Source, f *peft.Folder, notes *command.Printer) (checkpoint.Source, error) {
	if hf.OfBitsandbytes(src.Info()) {
		notes.Printf("--adapter-over %s: the weights of %s already have these values\n", o.over, src.Info().Path)
		return src, nil
	}
	rounded, err := hf.Quantized(src, o.over, o.double)
	if err != nil {
		return nil, err
	}
	list, err := peft.Distances(src, rounded, f)
	if err != nil {
		return nil, err
	}
	middle, worst, least := list[len(list)/2], list[0], list[len(list)-1]
	notes.Printf("rounding to %s changes weights %.3g times as much as the adapter does (median of %d modules; from %.3g in %s to %.3g in %s)\n",
		o.over, middle.Ratio(), len(list), least.Ratio(), least.Module, worst.Ratio(), worst.Module)
	if o.intoRounded {
		notes.Printf("the adapter is merged into the rounded weights, on which it was trained\n")
	} else {
		notes.Printf("the adapter is merged into the weights of the input, which differ by that rounding from those on which it was trained; use --merge-rounded to merge it into the rounded weights\n")
	}
	return rounded, nil
}

// writeAdapter writes --adapter alone.
func (o *options) writeAdapter(ctx context.Context, c *cli.Context, src checkpoint.Source, notes *command.Printer) (err error) {
	info := src.Info()
	f, err := peft.Open(o.adapter, info.Model, info.Family)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	written, err := gguf.WriteAdapter(ctx, o.output, info, f, o.write)
	if err != nil {
		return interrupted(ctx, err)
	}
	for _, n := range written.Notes {
		notes.Printf("note: %s\n", n)
	}
	notes.Printf("%s to %s (gguf): an adapter of %d modules for %s, %d bytes\n", o.adapter, written.Path, len(f.Adapters), info.Path, written.Bytes)
	if _, err := fmt.Fprintln(c.App.Writer, written.Path); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	return notes.Err
}

// Package all joins the checkpoint formats: whatever a path holds is opened,
// whatever is asked for is written.
package all

import (
	"context"
	"errors"
	"maps"
	"slices"

	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/gguf"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/checkpoint/llmc"
	"monotron/megatron/checkpoint/megatron/torch"
	"monotron/megatron/checkpoint/megatron/torchdist"
	"monotron/megatron/checkpoint/nanogpt"
	"monotron/megatron/checkpoint/native"
)

// format is one row of the table: nil where that way does not exist.
type format struct {
	open  checkpoint.Opener
	write checkpoint.Writer
}

var table = map[checkpoint.Format]format{
	checkpoint.Native:  {native.OpenSource, native.Write},
	checkpoint.HF:      {hf.OpenSource, hf.Write},
	checkpoint.LLMC:    {llmc.Open, llmc.Write},
	checkpoint.NanoGPT: {nanogpt.Open, nanogpt.Write},
	checkpoint.GGUF:    {gguf.Open, gguf.Write},

	checkpoint.MegatronTorch:     {torch.Open, torch.Write},
	checkpoint.MegatronTorchDist: {torchdist.Open, torchdist.Write},
}

// Open opens a checkpoint of any format, recognized by its content.
func Open(path string, o checkpoint.OpenOptions) (checkpoint.Source, error) {
	f, err := checkpoint.DetectAt(path, o.Step)
	if err != nil {
		return nil, err
	}
	return OpenAs(f, path, o)
}

// OpenAs opens a checkpoint of a known format.
func OpenAs(f checkpoint.Format, path string, o checkpoint.OpenOptions) (checkpoint.Source, error) {
	row, ok := table[f]
	if !ok || row.open == nil {
		return nil, exitcode.Errorf(exitcode.Usage, "%s: the format must be %s, not %q", path, argv.Or(Names()...), f)
	}
	src, err := row.open(path, o)
	if err != nil || f != checkpoint.Native {
		return src, err
	}
	if o.NoBase {
		return src, nil
	}
	full, err := completed(src, o)
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	return full, nil
}

// Write makes a checkpoint of format f at path from all that src shows.
func Write(ctx context.Context, f checkpoint.Format, path string, src checkpoint.Source, o checkpoint.WriteOptions) (checkpoint.Written, error) {
	row, ok := table[f]
	if !ok || row.write == nil {
		return checkpoint.Written{}, exitcode.Errorf(exitcode.Usage, "the format must be %s, not %q", argv.Or(Names()...), f)
	}
	return row.write(ctx, path, src, o)
}

// Known lists the formats by name.
func Known() []checkpoint.Format { return slices.Sorted(maps.Keys(table)) }

// Names lists them for messages.
func Names() (list []string) {
	for _, f := range Known() {
		list = append(list, string(f))
	}
	return list
}

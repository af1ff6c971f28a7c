// Package all joins the checkpoint formats: whatever a path holds is opened,
// whatever is asked for is written.
package all

import (
	"context"
	"maps"
	"slices"
	"strings"

	"monotron/fault"
	"monotron/megatron/checkpoint"
	"monotron/megatron/formats"
	"monotron/megatron/formats/hf"
	"monotron/megatron/formats/llmc"
	"monotron/megatron/formats/nanogpt"
	"monotron/megatron/formats/torch"
	"monotron/megatron/formats/torchdist"
)

// format is one row of the table: nil where that way does not exist.
type format struct {
	open  formats.Opener
	write formats.Writer
}

var table = map[formats.Format]format{
	formats.Native:  {checkpoint.OpenSource, checkpoint.Write},
	formats.HF:      {hf.OpenSource, hf.Write},
	formats.LLMC:    {llmc.Open, llmc.Write},
	formats.NanoGPT: {nanogpt.Open, nanogpt.Write},

	formats.MegatronTorch:     {torch.Open, torch.Write},
	formats.MegatronTorchDist: {torchdist.Open, torchdist.Write},
}

// Open opens a checkpoint of any format, told by its content.
func Open(path string, o formats.OpenOptions) (formats.Source, error) {
	f, err := formats.DetectAt(path, o.Step)
	if err != nil {
		return nil, err
	}
	return OpenAs(f, path, o)
}

// OpenAs opens a checkpoint of a known format.
func OpenAs(f formats.Format, path string, o formats.OpenOptions) (formats.Source, error) {
	row, ok := table[f]
	if !ok || row.open == nil {
		return nil, fault.Errorf(fault.Usage, "%s: format %q cannot be read; known are %s", path, f, Names())
	}
	return row.open(path, o)
}

// Write makes a checkpoint of format f at path from all that src shows.
func Write(ctx context.Context, f formats.Format, path string, src formats.Source, o formats.WriteOptions) (formats.Written, error) {
	row, ok := table[f]
	if !ok || row.write == nil {
		return formats.Written{}, fault.Errorf(fault.Usage, "format %q cannot be written; known are %s", f, Names())
	}
	return row.write(ctx, path, src, o)
}

// Known lists the formats by name.
func Known() []formats.Format { return slices.Sorted(maps.Keys(table)) }

// Names lists them for messages.
func Names() string {
	var list []string
	for _, f := range Known() {
		list = append(list, string(f))
	}
	return strings.Join(list, ", ")
}

package safetensors

import (
	"context"

	"monotron/internal/exitcode"
	"monotron/internal/parallelio/blocks"
)

// blockBytes of a tensor are made at a time, more or less, or one row of it.
const blockBytes = 8 << 20

// WriteFile makes the file path of tensors that fill writes into memory, complete
// rows [from, to) at a time: fill may be called from several goroutines. The file
// is complete and on disk when it has its name; WriteFile returns its size.
func WriteFile(ctx context.Context, path string, infos []Info, metadata map[string]string, fill func(i int, from, to int64, dst []byte) error) (int64, error) {
	header, err := Header(infos, metadata)
	if err != nil {
		return 0, exitcode.With(exitcode.Internal, err)
	}
	list := []blocks.Block{blocks.Head(0, header)}
	for i, info := range infos {
		rows := int64(1)
		if len(info.Shape) > 0 {
			rows = max(1, info.Shape[0])
		}
		row := info.Bytes / rows
		step := blocks.Step(rows, row, blockBytes)
		for r := int64(0); r < rows; r += step {
			end := min(rows, r+step)
			list = append(list, blocks.Block{Offset: info.Offset + r*row, Bytes: (end - r) * row, Fill: func(dst []byte) error { return fill(i, r, end, dst) }})
		}
	}
	return blocks.Write(ctx, path, list)
}

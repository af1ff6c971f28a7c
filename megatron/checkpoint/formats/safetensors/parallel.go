package safetensors

import (
	"context"

	"monotron/fault"
	"monotron/megatron/checkpoint/formats/blocks"
)

// WriteFile makes the file path of tensors that fill writes into memory, several
// at a time: fill may be called from several goroutines. The file is whole and on
// disk when it has its name; WriteFile returns its size.
func WriteFile(ctx context.Context, path string, infos []Info, metadata map[string]string, fill func(i int, dst []byte) error) (int64, error) {
	header, err := Header(infos, metadata)
	if err != nil {
		return 0, fault.With(fault.Internal, err)
	}
	list := []blocks.Block{blocks.Head(0, header)}
	for i, info := range infos {
		list = append(list, blocks.Block{Offset: info.Offset, Bytes: info.Bytes, Fill: func(dst []byte) error { return fill(i, dst) }})
	}
	return blocks.Write(ctx, path, list)
}

package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/checkpoint/formats"
	"monotron/mpu"
)

// Write makes a native checkpoint of everything src lists: one file, whole
// tensors. path is a save folder, new or not.
func Write(ctx context.Context, path string, src formats.Source, _ formats.WriteOptions) (formats.Written, error) {
	_, err := os.Lstat(path)
	fresh := errors.Is(err, fs.ErrNotExist)
	state, err := nativeState(src)
	if err != nil {
		return formats.Written{}, err
	}
	s := newWriter(path, state, SaveOptions{})
	for _, t := range src.Tensors() {
		dtype, ok := dtypeOf[t.DType]
		if !ok {
			return formats.Written{}, fault.Errorf(fault.BadData, "%s: tensor %q: native checkpoints hold no %s", src.Info().Path, t.Name, t.DType)
		}
		s.parts = append(s.parts, part{t.Name, dtype, t.Shape, formats.Whole(t.Shape), reader(src, t)})
		s.report.Bytes += t.Bytes()
	}
	s.order()
	report, err := s.run(ctx)
	if err != nil && fresh && !s.done {
		_ = os.Remove(path) // ours, and empty again
	}
	return formats.Written{Path: report.Folder, Files: 2, Bytes: report.Bytes}, err
}

// reader gives the bytes of a tensor in order, by whole rows where the chunk
// asked for is not.
func reader(src formats.Source, t formats.Tensor) func(dst []byte, at int64) error {
	row := t.Bytes() / t.Shape[0]
	var buf []byte
	return func(dst []byte, at int64) error {
		first, end := at/row, (at+int64(len(dst))+row-1)/row
		box := mpu.Piece{From: make([]int64, len(t.Shape)), Size: append([]int64{end - first}, t.Shape[1:]...)}
		box.From[0] = first
		n := (end - first) * row
		if n == int64(len(dst)) {
			return src.Read(t.Name, box, dst)
		}
		if int64(cap(buf)) < n {
			buf = make([]byte, n)
		}
		if err := src.Read(t.Name, box, buf[:n]); err != nil {
			return err
		}
		copy(dst, buf[at-first*row:n])
		return nil
	}
}

// nativeState is the state of src with a Config that names its model.
func nativeState(src formats.Source) (State, error) {
	state, info := src.State(), src.Info()
	if len(state.Config) > 0 || info.Model == nil {
		return state, nil
	}
	c := RunConfig{Model: *info.Model, SeqLength: info.SeqLength, Precision: precision(src)}
	text, err := json.Marshal(&c)
	if err != nil {
		return state, fault.With(fault.Internal, fmt.Errorf("checkpoint: the model of %s: %w", info.Path, err))
	}
	state.Config = text
	return state, nil
}

// precision is that of the values, as training.Config names it.
func precision(src formats.Source) string {
	for _, t := range src.Tensors() {
		if strings.HasPrefix(t.Name, formats.Model) {
			switch dtypeOf[t.DType] {
			case device.BF16:
				return "bf16"
			case device.F16:
				return "fp16"
			}
			return "f32"
		}
	}
	return "f32"
}

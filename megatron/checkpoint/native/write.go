package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/parallelio/blocks"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
	"monotron/tokenizer"
)

// Write makes a native checkpoint of everything src lists: one file, complete
// tensors. path is a save folder, new or not, to which it is added.
func Write(ctx context.Context, path string, src checkpoint.Source, o checkpoint.WriteOptions) (done checkpoint.Written, err error) {
	state, err := nativeState(src)
	if err != nil {
		return checkpoint.Written{}, err
	}
	adding, err := checkpoint.Add(path, checkpoint.Tracked{Iteration: state.Iteration})
	if err != nil {
		return checkpoint.Written{}, err
	}
	defer func() { err = errors.Join(err, adding.Close(err)) }()
	note, later := adding.Later()
	s := newWriter(path, state, SaveOptions{Tokenizer: tokenizerOf(src, o), keepTracker: later})
	for _, t := range src.Tensors() {
		dtype, ok := dtypeOf[t.DType]
		if !ok {
			return checkpoint.Written{}, exitcode.Errorf(exitcode.BadData, "%s: tensor %q: native checkpoints do not support %s", src.Info().Path, t.Name, t.DType)
		}
		s.parts = append(s.parts, part{t.Name, dtype, t.Shape, checkpoint.Uncut(t.Shape), nil, tasks(src, t)})
		s.report.Bytes += t.Bytes()
	}
	s.order()
	report, err := s.run(ctx)
	done = checkpoint.Written{Path: report.Folder, Files: 2, Bytes: report.Bytes, Notes: report.Notes}
	done.AddNote(note)
	return done, err
}

func tokenizerOf(src checkpoint.Source, o checkpoint.WriteOptions) tokenizer.Config {
	if o.NoTokenizerFiles {
		return tokenizer.Config{}
	}
	return src.Info().Tokenizer
}

// tasks read a tensor by complete rows.
func tasks(src checkpoint.Source, t checkpoint.Tensor) (list []blocks.Task) {
	const taskBytes = 8 << 20
	width := checkpoint.Width(t.DType)
	checkpoint.BoxByRows(checkpoint.Uncut(t.Shape), taskBytes/width, func(box mpu.Piece) {
		list = append(list, blocks.Task{Bytes: box.Len() * width, Fill: func(dst []byte) error { return src.Read(t.Name, box, dst) }})
	})
	return list
}

// nativeState is the state of src with a Config that names its model.
func nativeState(src checkpoint.Source) (State, error) {
	state, info := src.State(), src.Info()
	if err := state.KeepSpecials(info.Specials); err != nil {
		return state, exitcode.With(exitcode.Internal, fmt.Errorf("checkpoint: internal error: the special tokens of %s cannot be written as JSON: %w; report this, and include the command line", info.Path, err))
	}
	if len(state.Config) > 0 || info.Model == nil {
		return state, nil
	}
	c := RunConfig{Model: *info.Model, Tokenizer: info.Tokenizer.Absolute(), SeqLength: info.SeqLength, Precision: precision(src)}
	text, err := json.Marshal(&c)
	if err != nil {
		return state, exitcode.With(exitcode.Internal, fmt.Errorf("checkpoint: internal error: the model of %s cannot be written as JSON: %w; report this, and include the command line", info.Path, err))
	}
	state.Config = text
	return state, nil
}

// precision is that of the values, as training.Config names it.
func precision(src checkpoint.Source) string {
	for _, t := range src.Tensors() {
		if strings.HasPrefix(t.Name, checkpoint.Model) {
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

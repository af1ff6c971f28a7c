package convert

import (
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/peft"
	"monotron/tools/internal/command"
)

// merge adds the adapter of --adapter, and those that the input has itself, to the weights; an
// input without any is src itself. done ends the reading of the adapter's files.
func (o *options) merge(src checkpoint.Source, notes *command.Printer) (merged checkpoint.Source, done func() error, err error) {
	info := src.Info()
	if o.adapter != "" {
		src = peft.MergeOwn(src)
		f, err := peft.Open(o.adapter, src.Info().Model, info.Family)
		if err != nil {
			return nil, nil, err
		}
		notes.Printf("merging %d adapted modules of %s\n", len(f.Adapters), o.adapter)
		return peft.Merge(src, f), f.Close, nil
	}
	if n := len(info.Model.Adapters); n > 0 {
		notes.Printf("merging the %d adapted modules of %s\n", n, info.Path)
	}
	return peft.MergeOwn(src), func() error { return nil }, nil
}

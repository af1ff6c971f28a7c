package convert

import (
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/peft"
	"monotron/tools/internal/command"
)

// merge is the input with the sums of --adapter, or of the adapter that the run of the input
// trained, in its weights. Closing it closes the adapter's file alone.
func (o *options) merge(src checkpoint.Source, notes *command.Printer) (unclosed, error) {
	info := src.Info()
	if o.adapter != "" {
		src = peft.MergeOwn(src)
		f, err := peft.Open(o.adapter, src.Info().Model, info.Family)
		if err != nil {
			return unclosed{}, err
		}
		notes.Printf("merging %d adapted modules of %s\n", len(f.Adapters), o.adapter)
		return unclosed{peft.Merge(src, f), f.Close}, nil
	}
	if n := len(info.Model.Adapters); n > 0 {
		notes.Printf("merging the %d adapted modules of %s\n", n, info.Path)
	}
	return unclosed{peft.MergeOwn(src), func() error { return nil }}, nil
}

// unclosed is a source whose input somebody else closes.
type unclosed struct {
	checkpoint.Source
	close func() error
}

func (u unclosed) Close() error { return u.close() }

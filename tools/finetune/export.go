package finetune

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"monotron/internal/argv"
	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/checkpoint/peft"
	"monotron/megatron/training"
	"monotron/tools/internal/command"
)

// export writes the checkpoint to keep as a Hugging Face folder, and its adapter.
func (o *options) export(ctx context.Context, notes *command.Printer) (err error) {
	step, err := o.kept(notes)
	if err != nil {
		return err
	}
	src, err := all.OpenAs(checkpoint.Native, o.folder(checkpoints), checkpoint.OpenOptions{Step: step})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	// An adapter alone, then the model with the adapter merged.
	if len(src.Info().Model.Adapters) > 0 {
		if err := training.WriteAdapter(o.folder(adapter), src); err != nil {
			return err
		}
		notes.Printf("%s: the adapter, for PEFT\n", o.folder(adapter))
	}
	merged, note := hf.PlainNorms(checkpoint.Finite(peft.MergeOwn(src)), checkpoint.WriteOptions{})
	written, err := all.Write(ctx, checkpoint.HF, o.folder(modelFolder), merged, checkpoint.WriteOptions{})
	if err != nil {
		return err
	}
	if note != "" {
		written.Notes = append(written.Notes, note)
	}
	if o.template != "" {
		if err := copyFile(filepath.Join(o.folder(modelFolder), "chat_template.jinja"), o.template); err != nil {
			return err
		}
	}
	for _, n := range written.Notes {
		notes.Printf("note: %s\n", n)
	}
	notes.Printf("%s: the tuned model; try: monotron chat %[2]s, or monotron serve --load %[2]s\n", written.Path, argv.Quoted(written.Path))
	return nil
}

// kept is the iteration of the checkpoint to export, -1 for the newest, and says which it is.
func (o *options) kept(notes *command.Printer) (int64, error) {
	best, err := training.BestOf(o.folder(checkpoints))
	if err != nil || best == nil || best.Iteration == 0 {
		return -1, err
	}
	before := ""
	if best.Start != nil {
		before = fmt.Sprintf("; before tuning the loss was %.4f", *best.Start)
	}
	if !o.keepBest {
		notes.Printf("the last weights are kept; the lowest validation loss was %.4f, at iteration %d%s\n", best.Loss, best.Iteration, before)
		return -1, nil
	}
	notes.Printf("the weights of iteration %d are kept, whose validation loss %.4f is the lowest%s\n", best.Iteration, best.Loss, before)
	return best.Iteration, nil
}

// copyFile copies a file, which appears complete or not at all.
func copyFile(to, from string) error {
	in, err := exitcode.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return atomicfile.Write(to, 0o666, func(out *os.File) error {
		_, err := io.Copy(out, in)
		return exitcode.With(exitcode.IO, err)
	})
}

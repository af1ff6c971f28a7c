package finetune

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/peft"
	"monotron/tools/internal/command"
)

// export writes the newest checkpoint as a Hugging Face folder, and its adapter.
func (o *options) export(ctx context.Context, notes *command.Printer) (err error) {
	src, err := all.OpenAs(checkpoint.Native, o.folder(checkpoints), checkpoint.OpenOptions{Step: -1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if len(src.Info().Model.Adapters) > 0 {
		if err := o.copyAdapter(); err != nil {
			return err
		}
		notes.Printf("%s: the adapter, for PEFT\n", o.folder(adapter))
	}
	written, err := all.Write(ctx, checkpoint.HF, o.folder(modelFolder), checkpoint.Finite(peft.MergeOwn(src)), checkpoint.WriteOptions{})
	if err != nil {
		return err
	}
	if o.template != "" {
		if err := copyFile(filepath.Join(o.folder(modelFolder), "chat_template.jinja"), o.template); err != nil {
			return err
		}
	}
	for _, n := range written.Notes {
		notes.Printf("note: %s\n", n)
	}
	notes.Printf("%s: the tuned model; try: monotron serve --load %s\n", written.Path, written.Path)
	return nil
}

// copyAdapter copies the adapter that training has left beside its checkpoints.
func (o *options) copyAdapter() error {
	if err := os.MkdirAll(o.folder(adapter), 0o755); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	for _, name := range []string{peft.WeightsFile, peft.ConfigFile} {
		if err := copyFile(filepath.Join(o.folder(adapter), name), filepath.Join(o.folder(checkpoints), adapter, name)); err != nil {
			return err
		}
	}
	return nil
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

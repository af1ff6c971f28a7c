package convert

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/gguf"
	"monotron/tools/internal/command"
)

const description = `The input's format is detected from its content; any layout is accepted. Formats to write:

  native      this program's own format, which loads under any layout
  torch       Megatron-LM's --ckpt-format torch: mp_rank_XX/model_optim_rng.pt, one per rank
  torch_dist  Megatron-LM's --ckpt-format torch_dist: .distcp and .metadata, which load under any layout
  hf          Hugging Face: config.json, safetensors, tokenizer files
  nanogpt     ckpt.pt of nanoGPT
  llmc        model_*.bin of llm.c, with state_*.bin if there are moments
  gguf        one file for llama.cpp and Ollama, tokenizer and chat template included

Optimizer state, iteration, samples and schedule are converted where both formats store them,
so that training can continue; the command reports what is left out. Weights stay equal bit for
bit unless --dtype names another type. A checkpoint of any size needs memory for about one tensor.
The output appears only when it is complete; after an error no part of it remains. No existing file is
overwritten, except a tracker file: an iteration can be added to an existing save folder that does not
contain it yet, and the tracker file then names the added iteration, unless it names a later one. While a run
saves to the folder, the command is refused.

Examples:
  monotron convert --input Llama-3.1-8B --to torch_dist --output ckpt \
      --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2
  monotron convert --input ckpt --to hf --output my-model --tokenizer Llama-3.1-8B --dtype bf16 --verify
  monotron convert --input my-model --to gguf --type q8_0 --output my-model.gguf
  monotron convert --input my-model --adapter tuned/adapter --adapter-only --to gguf --output adapter.gguf`

// Command is convert; open makes the device that --verify computes on.
func Command(open func(name string) (*device.Device, error)) *cli.Command {
	return command.WrapInstead(&cli.Command{
		Name:        "convert",
		Usage:       "convert a checkpoint to another format or layout",
		Description: description,
		Flags:       append(allFlags(), command.DeviceFlags()...),
		Action: func(c *cli.Context) error {
			if err := command.NoArgs(c); err != nil {
				return err
			}
			o, err := readOptions(c)
			if err != nil {
				return err
			}
			return run(c, o, open)
		},
	}, instead)
}

// run converts and reports what was done; the path of the result goes to standard
// output.
func run(c *cli.Context, o *options, open func(string) (*device.Device, error)) error {
	ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
	defer stop()
	notes := &command.Printer{W: c.App.ErrWriter}
	var err error
	// The input, checked before anything is written.
	if o.input, err = command.Local(c, o.input, o.step); err != nil {
		return fmt.Errorf("--input: %w", err)
	}
	original, err := o.openInput()
	if err != nil {
		return err
	}
	defer original.Close()
	if err := checkpoint.Check(original); err != nil {
		return err
	}
	for _, n := range original.Info().Notes {
		notes.Printf("%s: %s\n", original.Info().Path, n)
	}
	if o.adapterOnly {
		return o.writeAdapter(ctx, c, original, notes)
	}
	// The adapter is merged or taken apart; then types, what is left out, names.
	full, done, err := o.merge(original, notes)
	if err != nil {
		return err
	}
	defer done()
	src, err := o.view(full)
	if err != nil {
		return err
	}
	o.noteLeft(notes)
	o.noteZeros(notes)
	if o.plain != "" {
		notes.Printf("note: %s\n", o.plain)
	}
	// The result, and what is made with it.
	written, err := all.Write(ctx, o.to, o.output, src, o.write)
	if err != nil {
		return interrupted(ctx, err)
	}
	for _, n := range written.Notes {
		notes.Printf("note: %s\n", n)
	}
	notes.Printf("%s (%s) to %s (%s): %s, %s, %d bytes\n", original.Info().Path, original.Info().Format, written.Path, o.to,
		logging.Count(len(src.Tensors()), "tensor"), logging.Count(written.Files, "file"), written.Bytes)
	if err := o.splitOff(ctx, original, notes); err != nil {
		return err
	}
	if o.modelfile != "" {
		if err := o.writeModelfile(written.Path, notes); err != nil {
			return err
		}
	}
	// The result is read again and compared.
	if o.verify {
		if err := verify(c, o, src, written, open, notes); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(c.App.Writer, written.Path); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	return notes.Err
}

// noteLeft says that layers of multi-token prediction are not in the output.
func (o *options) noteLeft(notes *command.Printer) {
	if o.aheadLeft > 0 {
		notes.Printf("note: %s of multi-token prediction left out: %s contains only the decoder, whose next-token logits are the same\n", logging.Count(o.aheadLeft, "layer"), o.to)
	}
}

// noteZeros says that biases were added.
func (o *options) noteZeros(notes *command.Printer) {
	if o.zeroed {
		notes.Printf("note: the linear layers have no biases; zeros are written instead, which have the same effect, and which nanoGPT trains\n")
	}
}

// writeModelfile makes what Ollama needs with the GGUF file at path.
func (o *options) writeModelfile(path string, notes *command.Printer) error {
	text, more, err := gguf.Modelfile(path)
	if err != nil {
		return err
	}
	for _, n := range more {
		notes.Printf("note: %s\n", n)
	}
	if err := checkpoint.WriteBytes(o.modelfile, []byte(text)); err != nil {
		return err
	}
	notes.Printf("wrote %s; next: ollama create NAME -f %s\n", o.modelfile, argv.Quoted(o.modelfile))
	return nil
}

// interrupted gives an error that a signal caused its code.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return exitcode.Errorf(exitcode.Again, "stopped by a signal; no output was written")
	}
	return err
}

// openInput opens the input as it is, padding aside.
func (o *options) openInput() (checkpoint.Source, error) {
	open := checkpoint.OpenOptions{Step: o.step, MTP: o.mtp}
	if o.from != "" {
		return all.OpenAs(o.from, o.input, open)
	}
	return all.Open(o.input, open)
}

// tokenizerFolder is where the tokenizer's files are taken from: the flag's, or
// the input where that is a model's folder.
func (o *options) tokenizerFolder(info checkpoint.Info) string {
	if o.write.Tokenizer != "" {
		return o.write.Tokenizer
	}
	if info.Format == checkpoint.HF {
		return filepath.Clean(info.Path)
	}
	return ""
}

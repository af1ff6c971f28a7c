package finetune

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/megatron/config"
	"monotron/tools/internal/command"
)

const description = `Tunes a model on the rows of a file (JSON lines or a JSON array, which may be compressed, or Parquet), and writes the result as a Hugging Face folder. By default
a low-rank adapter (LoRA) is trained on every linear layer; --lora-rank 0 trains all weights.

A row is one of:
  {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
  {"prompt": "...", "completion": "..."}
  {"instruction": "...", "input": "...", "output": "..."}
  {"text": "..."}

Training uses the answers only: the assistant's messages of a conversation, or the completion of a prompt.
"monotron inspect samples --labels" shows which tokens these are.

With --tuning dpo, ipo, orpo, simpo or kto the model learns from pairs of answers; kto also learns from single answers
with a label:
  {"prompt": "...", "chosen": "...", "rejected": "..."}
  {"prompt": "...", "completion": "...", "label": true}
These may be texts or lists of messages.

With --tuning grpo the model samples answers to each prompt and learns from their rewards. At least one of
--reward, --reward-pattern and --reward-command is needed; --reward exact compares an answer with this field of the row:
  {"prompt": "...", "answer": "..."}

With --eval-data each epoch ends with an evaluation, and the stored adapter and model are
those with the lowest validation loss; --patience N ends training after N evaluations without a lower loss.

The folder of --output contains a record of the tuning (tuning.json) and three folders:
  checkpoints  to resume from: give the same command again
  adapter      the adapter in PEFT's files, unless --lora-rank is 0
  model        the tuned model, with the adapter merged into its weights

Flags of pretrain_gpt may follow, as in --world-size 2 --bf16.

Examples:
  monotron finetune --model SmolLM2-135M-Instruct --data train.jsonl --eval-data test.jsonl --output tuned
  monotron finetune --model SmolLM2-135M-Instruct --data train.jsonl --eval-data test.jsonl --output tuned --epochs 10 --patience 2
  monotron finetune --model tuned/model --data pairs.jsonl --tuning dpo --output preferred
  monotron finetune --model tuned/model --data prompts.jsonl --tuning grpo --output rewarded --reward exact
  monotron finetune --model tuned/model --data more.jsonl --output tuned-more --lora-rank 0 --lr 1e-5`

// Command is finetune; train runs pretrain_gpt with arguments.
func Command(train func(ctx context.Context, args []string) error) *cli.Command {
	return command.WrapOpen(&cli.Command{
		Name:        "finetune",
		Usage:       "tune a model on conversations, instructions, texts, preferences or rewards",
		Description: description,
		Flags:       allFlags(),
		Action: func(c *cli.Context) error {
			o, err := readOptions(c)
			if err != nil {
				return err
			}
			return run(c, o, train)
		},
	})
}

func allFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "model", Usage: "tune this model: a Hugging Face folder, or a save folder of pretrain_gpt"},
		&cli.StringFlag{Name: "data", Usage: "train on the rows of this file: JSON lines or a JSON array (may be compressed), or Parquet"},
		&cli.StringFlag{Name: "eval-data", Usage: "evaluate on the validation rows of this file before training and after each epoch"},
		&cli.StringFlag{Name: "output", Usage: "write checkpoints, adapter and model to this folder"},
		&cli.StringFlag{Name: "tuning", Value: config.TuneSupervised, Usage: "choose the method: sft (supervised), dpo, ipo, orpo, simpo or kto (preferences), or grpo (rewards)"},
		command.Between(0, 1e6, &cli.Float64Flag{Name: "beta", Usage: "set how closely preference tuning keeps to the initial model; with orpo, set the weight of the preference term (default: 0.1; with simpo 2)"}),
		&cli.StringFlag{Name: "keep", Usage: "choose the weights to store in adapter and model: those with the lowest validation loss (best), or the last ones (last) (default: best with --eval-data, else last)"},
		command.Between(0, 1<<20, &cli.IntFlag{Name: "patience", Usage: "end training after N evaluations without a lower validation loss (0 trains all epochs)"}),
		command.Between(0.001, 10000, &cli.Float64Flag{Name: "epochs", Value: 3, Usage: "train X times on each row"}),
		command.Between(1, 1<<20, &cli.IntFlag{Name: "batch-size", Value: 16, Usage: "use N sequences per step, or N pairs with preference tuning"}),
		command.Between(0, command.Sizes, &cli.IntFlag{Name: "batch-tokens", Usage: "use as many sequences per step as fit into N tokens, including padding, instead of --batch-size (default: --batch-size applies)"}),
		command.Between(0, 1<<16, &cli.IntFlag{Name: "micro-batch-size", Usage: "compute N sequences at once; this changes the memory and the speed, but not the result (default: the largest divisor, up to 4, of a data-parallel rank's part of --batch-size)"}),
		command.Between(0, command.Sizes, &cli.IntFlag{Name: "seq-length", Usage: "use N tokens per sequence; longer rows are truncated (default: 1024, or the model's context if it is shorter)"}),
		&cli.StringFlag{Name: "packing", Value: "bfd", Usage: "choose how rows fill sequences: bfd (best fit), bfd_split (best fit, where long rows are split), in_order (the order of the file) or none (one row per sequence, which is the default if --tuning is not sft)"},
		command.Between(0, 10, &cli.Float64Flag{Name: "lr", Usage: "set the peak learning rate (default: 2e-4 for an adapter, 2e-5 for all weights; if --tuning is not sft, a twentieth of these)"}),
		command.Between(0, 1<<16, &cli.IntFlag{Name: "lora-rank", Value: 16, Usage: "set the rank of the adapter (0 trains all weights)"}),
		command.Between(0, 1e9, &cli.Float64Flag{Name: "lora-alpha", Usage: "set alpha; the adapter is multiplied by alpha / rank (default: twice the rank)"}),
		&cli.StringFlag{Name: "chat-template", Usage: "read the chat template from this file, in Jinja (default: the template of the tokenizer)"},
		command.Between(0, 1<<32-1, &cli.IntFlag{Name: "seed", Value: 1234, Usage: "set the seed of the order of rows and of the initial adapter"}),
	}
}

// run trains and exports.
func run(c *cli.Context, o *options, train func(context.Context, []string) error) error {
	notes := &command.Printer{W: c.App.ErrWriter}
	if _, err := os.Stat(o.folder(modelFolder)); err == nil {
		return exitcode.Errorf(exitcode.Usage, "--output %s already has a tuned model; give another --output, or remove the folder %[1]s to train again", o.output)
	}
	line, plan, err := o.line()
	if err != nil {
		return err
	}
	plan.tell(o, notes.Printf)
	undo, err := o.keepRecord(notes.Printf)
	if err != nil {
		return err
	}
	if err := train(c.Context, line); err != nil {
		undo()
		return err
	}
	// Until here a signal ends the command at once, or training handles it.
	ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.export(ctx, notes); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c.App.Writer, o.folder(modelFolder)); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	return notes.Err
}

// Folders of --output.
const (
	checkpoints = "checkpoints"
	adapter     = "adapter"
	modelFolder = "model"
)

func (o *options) folder(name string) string { return filepath.Join(o.output, name) }

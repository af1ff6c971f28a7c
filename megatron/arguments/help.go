package arguments

import (
	"fmt"
	"io"
	"strings"

	"monotron/megatron/arguments/table"
)

// often are the flags of the first page of help, by what they are for; the first are those
// that a run needs.
var often = []struct {
	subject string
	flags   []string
}{
	{"Needed (--model NAME gives the model and --seq-length)", []string{"num-layers", "hidden-size", "num-attention-heads", "seq-length", "max-position-embeddings",
		"micro-batch-size", "train-iters", "lr", "data-path"}},
	{"Model", []string{"model", "position-embedding-type", "normalization", "swiglu", "num-query-groups", "num-experts", "hidden-dropout", "attention-dropout"}},
	{"Data", []string{"split", "train-data-path", "valid-data-path", "tokenizer-type", "vocab-file", "merge-file", "tokenizer-model", "mock-data"}},
	{"Training", []string{"global-batch-size", "bf16", "optimizer", "lr-decay-style", "lr-warmup-iters", "min-lr", "weight-decay", "clip-grad", "seed", "eval-interval", "eval-iters"}},
	{"Checkpoints", []string{"save", "save-interval", "load", "finetune", "ckpt-format"}},
	{"Ranks and memory", []string{"world-size", "tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size", "expert-model-parallel-size", "sequence-parallel",
		"use-distributed-optimizer", "recompute-granularity", "device"}},
	{"Watching a run", []string{"log-interval", "log-jsonl", "dashboard-addr", "tensorboard-dir", "sample-prompt", "run-name"}},
	{"This command line", []string{"config", "print-config"}},
}

// WriteHelp prints --help: the flags that a run needs and those that are used often.
func WriteHelp(w io.Writer) error {
	var out strings.Builder
	out.WriteString(`monotron pretrain_gpt: train a GPT model with Megatron-LM's flags

Usage: monotron pretrain_gpt [FLAGS]

Names may be written with dashes or underscores. --print-config prints the value of
every flag and where it came from.

Examples:
  monotron pretrain_gpt --num-layers 2 --hidden-size 64 --num-attention-heads 4 \
      --seq-length 64 --max-position-embeddings 64 --micro-batch-size 4 \
      --train-iters 100 --lr 1e-3 --mock-data --tokenizer-type NullTokenizer --vocab-size 255
  monotron pretrain_gpt --model gpt2-124m --micro-batch-size 4 --global-batch-size 32 --bf16 \
      --data-path text_text_document --train-iters 1000 --lr 6e-4 \
      --save checkpoints --load checkpoints --save-interval 100 --log-jsonl checkpoints/steps.jsonl
`)
	for _, group := range often {
		fmt.Fprintf(&out, "\n%s:\n", group.subject)
		for _, name := range group.flags {
			f := table.Find(name)
			out.WriteString(entry(usage(f), describe(f)))
		}
	}
	fmt.Fprintf(&out, "\n--help-all lists all %d flags, with those of Megatron-LM that have no effect or are refused.\n", len(table.All()))
	_, err := io.WriteString(w, out.String())
	return err
}

// Widths of the first page in columns: of names, and of the page.
const (
	nameWidth = 32
	pageWidth = 100
)

// entry is a flag and its text in two columns.
func entry(name, text string) string {
	var out strings.Builder
	line := fmt.Sprintf("  %-*s", nameWidth, name)
	if len(name) > nameWidth {
		fmt.Fprintln(&out, line)
		line = fmt.Sprintf("  %*s", nameWidth, "")
	}
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > pageWidth {
			fmt.Fprintln(&out, line)
			line = fmt.Sprintf("  %*s", nameWidth, "")
		}
		line += " " + word
	}
	fmt.Fprintln(&out, line)
	return out.String()
}

// WriteAllHelp prints --help-all: every flag by owner, with its default and its class;
// flags with one reason stand together.
func WriteAllHelp(w io.Writer) error {
	var out strings.Builder
	out.WriteString(`Trains a GPT model with Megatron-LM's flags.

A value comes from the command line, else from the --config file, else from a
checkpoint's arguments (--use-checkpoint-args), else it is the default. Names may
be written with dashes or underscores. --print-config prints every value and its
source.

  -  accepted without effect        x  refused, with what to use instead
  o  not yet supported

A minimal run:
  pretrain_gpt --num-layers 2 --hidden-size 64 --num-attention-heads 4 \
    --seq-length 64 --max-position-embeddings 64 --micro-batch-size 4 \
    --train-iters 100 --lr 1e-3 --mock-data --tokenizer-type NullTokenizer --vocab-size 255
`)
	// Groups come sorted by owner; a heading begins each owner's.
	owner := ""
	for _, group := range table.Groups() {
		if f := group[0]; f.Owner != owner {
			owner = f.Owner
			fmt.Fprintf(&out, "\n%s\n", strings.ToUpper(owner))
		}
		out.WriteString(helpLines(group))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// helpLines is one line for a flag, or for a reason with the flags it is given for
// below.
func helpLines(group []*table.Flag) string {
	f := group[0]
	if len(group) == 1 {
		return fmt.Sprintf("%-52s %s\n", mark(f)+" "+usage(f), describe(f))
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s %s:\n", mark(f), f.Why)
	for line := ""; len(group) > 0; group = group[1:] {
		line += " " + usage(group[0])
		if len(line) > 90 || len(group) == 1 {
			fmt.Fprintf(&out, "   %s\n", line)
			line = ""
		}
	}
	return out.String()
}

// mark is the class of f in one letter.
func mark(f *table.Flag) string {
	if f.NotYet {
		return "o"
	}
	return map[table.Class]string{table.Works: " ", table.Accepted: "-", table.Refused: "x"}[f.Class]
}

// usage is the name of f and a stand-in for its values.
func usage(f *table.Flag) string {
	return strings.TrimSpace("--" + f.Name + " " + placeholder(f, metavariable(f)))
}

// placeholder stands for the values of f, one of which is called as given.
func placeholder(f *table.Flag, one string) string {
	switch {
	case f.Kind == table.Switch:
		return ""
	case f.Empty != "":
		return "[" + one + "]"
	case f.Kind >= table.Ints:
		return one + " ..."
	}
	return one
}

// metavariable says what a value of f is: by its kind, its choices, or the last word of its name.
func metavariable(f *table.Flag) string {
	switch f.Kind {
	case table.Int, table.Ints:
		return "N"
	case table.Float, table.Floats:
		return "X"
	}
	if len(f.Choices) > 0 {
		return "NAME"
	}
	switch words := strings.Split(f.Name, "-"); words[len(words)-1] {
	case "file", "jsonl", "config", "profile", "template":
		return "FILE"
	case "json":
		if f.Name == "result-json" { // the values of other flags are JSON
			return "FILE"
		}
	case "dir", "folder", "save", "load", "checkpoint", "fingerprints":
		if f.Kind != table.Strings { // a list has names
			return "DIR"
		}
	case "path", "data", "adapter":
		return "PATH"
	case "model":
		if f.Name == "model" { // of a preset
			return "NAME"
		}
		return "PATH"
	case "addr", "address":
		return "ADDRESS"
	case "uri", "url", "endpoint":
		return "URL"
	case "name", "type", "format", "style", "device", "method", "recipe", "experiment", "project":
		return "NAME"
	case "command":
		return "COMMAND"
	}
	return "TEXT"
}

// describe is the text of f: help or reason, choices, default, older names.
func describe(f *table.Flag) string {
	text := f.Help
	if f.Class != table.Works {
		text = f.Why
	}
	if len(f.Choices) > 0 {
		text += " {" + strings.Join(f.Choices, ", ") + "}"
	}
	if f.Default != "" {
		text += " (default: " + f.Default + ")"
	}
	if len(f.Aliases) > 0 {
		text += " (also --" + strings.Join(f.Aliases, ", --") + ")"
	}
	return text
}

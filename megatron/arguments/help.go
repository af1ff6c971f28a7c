package arguments

import (
	"fmt"
	"io"
	"strings"
)

// WriteHelp prints --help: every flag by owner, with its default and its class.
func WriteHelp(w io.Writer) error {
	var out strings.Builder
	out.WriteString(`Trains a GPT model with Megatron-LM's flags.

Values: the command line wins over the --config file, that over a checkpoint's
arguments (--use-checkpoint-args), that over the defaults shown in brackets.
Names may be written with dashes or underscores. --print-config shows what a
command line comes to.

  -  accepted, changes nothing here        x  refused, with what to use instead
  o  not yet: read and checked, but not trained with

The smallest run:
  pretrain_gpt --num-layers 2 --hidden-size 64 --num-attention-heads 4 \
    --seq-length 64 --max-position-embeddings 64 --micro-batch-size 4 \
    --train-iters 100 --lr 1e-3 --mock-data --tokenizer-type NullTokenizer --vocab-size 255
`)
	owner := ""
	for i := range table {
		f := &table[i]
		if f.Owner != owner {
			owner = f.Owner
			fmt.Fprintf(&out, "\n%s\n", strings.ToUpper(owner))
		}
		out.WriteString(helpLine(f))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func helpLine(f *Flag) string {
	mark := map[Class]string{Works: " ", Accepted: "-", Refused: "x"}[f.Class]
	if f.notYet() {
		mark = "o"
	}
	head := fmt.Sprintf("%s --%s", mark, f.Name)
	if place := placeholder(f); place != "" {
		head += " " + place
	}
	return fmt.Sprintf("%-52s %s\n", head, describe(f))
}

// placeholder stands for the values of f.
func placeholder(f *Flag) string {
	switch {
	case f.Kind == Switch:
		return ""
	case f.Empty != "":
		return "[" + strings.ToUpper(f.Kind.String()) + "]"
	case f.Kind >= Ints:
		return strings.ToUpper(strings.TrimSuffix(f.Kind.String(), "s")) + ".."
	}
	return strings.ToUpper(f.Kind.String())
}

// describe is the text of f: help or reason, choices, default, older names.
func describe(f *Flag) string {
	text := f.Help
	if f.Class != Works {
		text = f.Why
	}
	if len(f.Choices) > 0 {
		text += " {" + strings.Join(f.Choices, ", ") + "}"
	}
	if f.Default != "" {
		text += " [" + f.Default + "]"
	}
	if len(f.Aliases) > 0 {
		text += " (also --" + strings.Join(f.Aliases, ", --") + ")"
	}
	return text
}

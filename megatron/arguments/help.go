package arguments

import (
	"fmt"
	"io"
	"strings"

	"monotron/megatron/arguments/table"
)

// WriteHelp prints --help: every flag by owner, with its default and its class;
// flags with one reason stand together.
func WriteHelp(w io.Writer) error {
	var out strings.Builder
	out.WriteString(`Trains a GPT model with Megatron-LM's flags.

A value comes from the command line, else from the --config file, else from a
checkpoint's arguments (--use-checkpoint-args), else it is the default, shown in
brackets. Names may be written with dashes or underscores. --print-config prints
every value and its source.

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
func usage(f *table.Flag) string { return strings.TrimSpace("--" + f.Name + " " + placeholder(f)) }

// placeholder stands for the values of f.
func placeholder(f *table.Flag) string {
	switch {
	case f.Kind == table.Switch:
		return ""
	case f.Empty != "":
		return "[" + strings.ToUpper(f.Kind.String()) + "]"
	case f.Kind >= table.Ints:
		return strings.ToUpper(strings.TrimSuffix(f.Kind.String(), "s")) + ".."
	}
	return strings.ToUpper(f.Kind.String())
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
		text += " [" + f.Default + "]"
	}
	if len(f.Aliases) > 0 {
		text += " (also --" + strings.Join(f.Aliases, ", --") + ")"
	}
	return text
}

package arguments

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Markdown is docs/flags.md: the whole table. A test keeps the file equal to it
// (go test ./megatron/arguments -update rewrites it).
func Markdown() string {
	var out strings.Builder
	out.WriteString(`# Flags of pretrain_gpt

Made from the table in ` + "`megatron/arguments`" + `; do not edit. Names may be written with dashes or underscores.
The command line wins over the ` + "`--config`" + ` file (YAML, the same names), that over a checkpoint's arguments
(` + "`--use-checkpoint-args`" + `), that over the defaults. ` + "`--print-config`" + ` shows what a command line comes to.

- **works**: does what it says.
- **accepted**: understood, changes nothing here; said once when given.
- **refused**: ends the run with the reason.
- **not yet**: read and checked (checkpoints of such models convert); training with it is refused.
`)
	owner := ""
	for i := range table {
		f := &table[i]
		if f.Owner != owner {
			owner = f.Owner
			fmt.Fprintf(&out, "\n## %s%s\n\n| flag | values | default | class | |\n|---|---|---|---|---|\n", strings.ToUpper(owner[:1]), owner[1:])
		}
		out.WriteString(markdownRow(f))
	}
	return out.String()
}

func markdownRow(f *Flag) string {
	names := "`--" + f.Name + "`"
	for _, alias := range f.Aliases {
		names += ", `--" + alias + "`"
	}
	text := f.Help
	if f.Class != Works {
		text = f.Why
	}
	for _, refusedValue := range sortedKeys(f.Refuse) {
		text += "; `" + refusedValue + "` refused"
	}
	values := placeholder(f)
	if len(f.Choices) > 0 {
		values = strings.Join(f.Choices, ", ")
	}
	class := f.Class.String()
	if f.notYet() {
		class = "not yet"
	}
	cells := []string{names, values, f.Default, class, text}
	for i := range cells {
		cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

func sortedKeys(m map[string]string) []string {
	return slices.Sorted(maps.Keys(m))
}

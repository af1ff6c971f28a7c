package arguments

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"monotron/megatron/arguments/table"
)

// Markdown is docs/flags.md: the complete table. A test keeps the file equal to it
// (go test ./megatron/arguments -update rewrites it).
func Markdown() string {
	var out strings.Builder
	out.WriteString(`# Flags of pretrain_gpt

This page is made from the table in ` + "`megatron/arguments/table`" + `; do not edit it. It has every flag of Megatron-LM (d98e8a64, August
2026). Names may be written with dashes or underscores. The value of a flag comes from the first of these sources that has one: the
command line; the ` + "`--config`" + ` file (YAML, with the same names); with ` + "`--use-checkpoint-args`" + `, the checkpoint's arguments; the default.
` + "`--print-config`" + ` prints every value and its source. Numbers are read as Python reads them (` + "`9_765_625`, `+5`, `1e-5`" + `).

- **works**: the flag is supported. If values, choices or the default are not those of Megatron-LM, the text after "Megatron-LM:" says what Megatron-LM has.
- **accepted**: the flag is known but has no effect in monotron; a note says so.
- **refused**: the flag is known but not supported; the run ends with the reason and, if there is one, the flag to use instead.
- **not yet**: the flag is refused until it is supported.
`)
	owner := ""
	for _, group := range table.Groups() {
		if f := group[0]; f.Owner != owner {
			owner = f.Owner
			fmt.Fprintf(&out, "\n## %s%s\n\n| flag | values | default | class | |\n|---|---|---|---|---|\n", strings.ToUpper(owner[:1]), owner[1:])
		}
		out.WriteString(markdownRow(group))
	}
	return out.String()
}

func markdownRow(group []*table.Flag) string {
	f := group[0]
	cells := []string{allNames(group), "", f.Default, class(f), reason(f)}
	if len(group) == 1 {
		cells[1] = values(f)
	}
	for i := range cells {
		cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// allNames are those of a group, with stand-ins for values where it has several.
func allNames(group []*table.Flag) string {
	var names []string
	for _, f := range group {
		first := "--" + f.Name
		if len(group) > 1 {
			first = strings.TrimSpace("--" + f.Name + " " + placeholder(f, kindOf(f)))
		}
		names = append(names, "`"+first+"`")
		for _, alias := range f.Aliases {
			names = append(names, "`--"+alias+"`")
		}
	}
	return strings.Join(names, ", ")
}

func class(f *table.Flag) string {
	if f.NotYet {
		return "not yet"
	}
	return f.Class.String()
}

// kindOf is the type of one value of f, in capitals.
func kindOf(f *table.Flag) string { return strings.ToUpper(strings.TrimSuffix(f.Kind.String(), "s")) }

// values says what f takes: choices, or a kind and from where to where.
func values(f *table.Flag) string {
	kind := placeholder(f, kindOf(f))
	switch {
	case len(f.Choices) > 0:
		return strings.Join(f.Choices, ", ")
	case f.Range != nil:
		return kind + " " + f.Range.String()
	}
	return kind
}

// reason is the help of f, or why it is not supported, and how it differs.
func reason(f *table.Flag) string {
	text := f.Help
	if f.Class != table.Works {
		text = f.Why
	}
	for _, refusedValue := range slices.Sorted(maps.Keys(f.Refuse)) {
		text += "; `" + refusedValue + "` refused"
	}
	if f.Differs != "" {
		text += ". Megatron-LM: " + f.Differs
	}
	return text
}

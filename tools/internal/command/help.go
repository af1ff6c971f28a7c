package command

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// In puts flags into a group that --help names in one line and --help-all lists.
func In(group string, flags []cli.Flag) []cli.Flag {
	for _, f := range flags {
		switch f := f.(type) {
		case *cli.BoolFlag:
			f.Category = group
		case *cli.StringFlag:
			f.Category = group
		case *cli.StringSliceFlag:
			f.Category = group
		case *cli.IntFlag:
			f.Category = group
		}
	}
	return flags
}

// helpAll is the key of an app's metadata that asks for the flags of all groups.
const helpAll = "help all"

// PrintHelp prints the help of an app or of a command, as urfave/cli's HelpPrinter does from
// templates.
func PrintHelp(w io.Writer, _ string, data any) {
	switch c := data.(type) {
	case *cli.App:
		p := page{w: w, path: c.HelpName, usage: c.Usage, arguments: c.ArgsUsage, text: c.Description, flags: c.Flags, commands: c.Commands}
		_, p.all = c.Metadata[helpAll]
		p.print()
	case *cli.Command:
		page{w: w, path: c.HelpName, usage: c.Usage, arguments: c.ArgsUsage, text: c.Description, flags: c.Flags, commands: c.Subcommands}.print()
	}
}

// page is the help of one command.
type page struct {
	w                            io.Writer
	path, usage, arguments, text string
	flags                        []cli.Flag
	commands                     []*cli.Command
	all                          bool
}

// Widths in columns: of the page, and of names before their sentences.
const (
	pageWidth = 100
	nameWidth = 26
)

func (p page) print() {
	fmt.Fprintf(p.w, "%s: %s\n\nUsage: %s", p.path, p.usage, p.path)
	if len(p.visible()) > 0 {
		fmt.Fprint(p.w, " COMMAND")
	}
	if len(p.flags) > 0 {
		fmt.Fprint(p.w, " [FLAGS]")
	}
	if p.arguments != "" {
		fmt.Fprint(p.w, " ", p.arguments)
	}
	fmt.Fprintln(p.w)
	if p.text != "" {
		fmt.Fprintln(p.w)
		p.paragraphs(p.text)
	}
	if list := examples[p.path]; len(list) > 0 {
		fmt.Fprint(p.w, "\nExamples:\n")
		for _, line := range list {
			fmt.Fprintln(p.w, "  "+strings.Join(wrapped(line, pageWidth-8), " \\\n      "))
		}
	}
	p.printCommands()
	p.printFlags()
}

// paragraphs prints a description: lines that are indented stay as they are; others are broken at the page's
// width, and what is left of one goes in front of the next.
func (p page) paragraphs(text string) {
	left := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if left != "" && (line == "" || strings.HasPrefix(line, " ")) {
			fmt.Fprintln(p.w, left)
			left = ""
		}
		if left != "" {
			line, left = left+" "+line, ""
		}
		if strings.HasPrefix(line, " ") || len(line) <= pageWidth {
			fmt.Fprintln(p.w, line)
			continue
		}
		lines := wrapped(line, pageWidth)
		left = lines[len(lines)-1]
		fmt.Fprintln(p.w, strings.Join(lines[:len(lines)-1], "\n"))
	}
	if left != "" {
		fmt.Fprintln(p.w, left)
	}
}

func (p page) visible() (list []*cli.Command) {
	for _, c := range p.commands {
		if !c.Hidden && c.Name != "help" {
			list = append(list, c)
		}
	}
	return list
}

// printCommands lists commands by group, in the order in which these come.
func (p page) printCommands() {
	group := ""
	for i, c := range p.visible() {
		if title := cmp.Or(c.Category, "Commands"); i == 0 || title != group {
			group = title
			fmt.Fprintf(p.w, "\n%s:\n", group)
		}
		p.entry(c.Name, c.Usage)
	}
	if group != "" {
		fmt.Fprintf(p.w, "\n%s COMMAND --help shows what a command does, with examples.\n", p.path)
	}
}

// printFlags lists the command's own flags, then, or in one line, those of each group.
func (p page) printFlags() {
	// Flags by group, in the order in which groups come.
	byGroup, order := map[string][]cli.Flag{}, []string{}
	for _, f := range p.flags {
		if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() {
			continue
		}
		group := ""
		if c, ok := f.(cli.CategorizableFlag); ok {
			group = c.GetCategory()
		}
		if _, met := byGroup[group]; !met {
			order = append(order, group)
		}
		byGroup[group] = append(byGroup[group], f)
	}
	// A group is one line unless all is asked for.
	var folded []string
	for _, group := range order {
		if group != "" && !p.all {
			folded = append(folded, fmt.Sprintf("%s (%d)", group, len(byGroup[group])))
			continue
		}
		fmt.Fprintf(p.w, "\n%s:\n", heading(group))
		for _, f := range byGroup[group] {
			p.flag(f)
		}
	}
	if len(folded) > 0 {
		fmt.Fprintf(p.w, "\n--help-all also lists the flags of: %s.\n", strings.Join(folded, ", "))
	}
}

func heading(group string) string {
	if group == "" {
		return "Flags"
	}
	return "Flags: " + group
}

// flag prints one flag: names, what its value is, sentence, default.
func (p page) flag(f cli.Flag) {
	names := []string{}
	for _, name := range f.Names() {
		if strings.Contains(name, "_") {
			continue // the same with dashes
		}
		if len(name) == 1 {
			names = append(names, "-"+name)
		} else {
			names = append(names, "--"+name)
		}
	}
	d, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return
	}
	meta, usage := metavariable(f, d.GetUsage())
	text := strings.Join(names, ", ")
	if meta != "" {
		text += " " + meta
	}
	if value := d.GetDefaultText(); d.TakesValue() && !strings.Contains(usage, "default") && value != "" && value != "0" && value != `""` {
		usage += fmt.Sprintf(" (default: %s)", strings.Trim(value, `"`))
	}
	p.entry(text, usage)
}

// entry prints a name and its sentence, in two columns where the name is short.
func (p page) entry(name, text string) {
	lines := wrapped(text, pageWidth-nameWidth-4)
	if len(name) > nameWidth {
		fmt.Fprintf(p.w, "  %s\n", name)
	} else {
		fmt.Fprintf(p.w, "  %-*s  %s\n", nameWidth, name, lines[0])
		lines = lines[1:]
	}
	for _, line := range lines {
		fmt.Fprintf(p.w, "  %*s  %s\n", nameWidth, "", line)
	}
}

// wrapped breaks a text at blanks into lines of at most so many columns.
func wrapped(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// quoted is the name of a value inside a flag's sentence.
var quoted = regexp.MustCompile("`([^`]+)`")

// metavariable is what a flag's value is called in its help, and the sentence without quotes:
// the name that stands before the sentence or in it, else one that follows from the flag's type and name.
func metavariable(f cli.Flag, usage string) (meta, sentence string) {
	if name, rest, found := strings.Cut(usage, "`: "); found && strings.HasPrefix(name, "`") {
		return name[1:], rest
	}
	if m := quoted.FindStringSubmatch(usage); m != nil {
		return m[1], quoted.ReplaceAllString(usage, "$1")
	}
	switch f.(type) {
	case *cli.BoolFlag:
		return "", usage
	case *cli.IntFlag, *cli.Int64Flag, *cli.Uint64Flag:
		return "N", usage
	case *cli.Float64Flag:
		return "X", usage
	case *cli.IntSliceFlag:
		return "N ...", usage
	case *cli.StringSliceFlag:
		return valueOf(f.Names()[0]) + " ...", usage
	}
	return valueOf(f.Names()[0]), usage
}

// valueOf is what a flag of text takes, by the last word of its name that says it.
func valueOf(flag string) string {
	words := strings.Split(flag, "-")
	for _, word := range slices.Backward(words) {
		for _, v := range values {
			if slices.Contains(v.words, word) {
				return v.name
			}
		}
	}
	return "TEXT"
}

var values = []struct {
	name  string
	words []string
}{
	{"FILE", []string{"file", "svg", "trace", "machine", "template", "timeline"}},
	{"DIR", []string{"dir", "folder", "cache"}},
	{"PREFIX", []string{"prefix"}},
	{"PATH", []string{"path", "load", "save", "input", "output", "data", "model", "adapter", "base"}},
	{"ADDRESS", []string{"addr", "host"}},
	{"HOST:PORT", []string{"endpoint"}},
	{"URL", []string{"url"}},
	{"NAME", []string{"name", "type", "format", "dtype", "device", "to", "schedule", "only", "show", "keys", "key", "lang", "impl", "pattern", "shape",
		"from", "family", "quantize", "tuning", "keep", "packing", "method", "line"}},
	{"N", []string{"size", "id", "num"}},
}

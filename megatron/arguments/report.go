package arguments

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"monotron/megatron/arguments/table"
	"monotron/megatron/telemetry"
)

// Report is what reading a command line found in addition to the Config.
type Report struct {
	// Notices for the user, each once: flags without effect, values that were
	// filled in against expectation.
	Notices []string
	// Help, HelpAll (Help is set as well) and PrintConfig were asked for.
	Help, HelpAll, PrintConfig bool

	parser *parser
}

// Given reports whether the flag was given on the command line, in the --config
// file or by the checkpoint.
func (r *Report) Given(name string) bool { return r.parser.given(name) }

// Source says where the value of a flag came from: "command line", file and
// line, "checkpoint", "derived" or "default".
func (r *Report) Source(name string) string {
	f := table.Find(name)
	if f == nil {
		return ""
	}
	if v, ok := r.parser.values[f.Name]; ok {
		return v.source
	}
	if f.Class != table.Works || r.parser.text(f) == newDefault(f) {
		return "default"
	}
	return "derived"
}

// Changed are the flags that were given with another value than their default, by name.
func (r *Report) Changed() (list []telemetry.Setting) {
	for _, name := range slices.Sorted(maps.Keys(r.parser.values)) {
		f := table.Find(name)
		if f.Class != table.Works {
			continue
		}
		if value, otherwise := r.parser.text(f), newDefault(f); value != otherwise {
			list = append(list, telemetry.Setting{Name: name, Value: value, Default: otherwise})
		}
	}
	return list
}

// newDefault is the text of f's value when nothing is given.
func newDefault(f *table.Flag) string {
	b := newBuild()
	if f.Default != "" {
		if err := b.set(f, defaults(f)); err != nil {
			panic(err)
		}
	}
	return b.text(f)
}

// WriteConfig prints each value and where it came from (--print-config), one
// flag a line. What it prints is a --config file for the same run: values that
// nobody gave are commented out.
func (r *Report) WriteConfig(w io.Writer) error {
	var out strings.Builder
	owner := ""
	for _, f := range table.All() {
		if f.Class != table.Works || f.Owner == table.Experts && r.parser.Model.Experts == nil || slices.Contains(aboutReading, f.Name) {
			continue
		}
		if f.Owner != owner {
			owner = f.Owner
			fmt.Fprintf(&out, "\n## %s\n", owner)
		}
		comment := "# "
		if r.Given(f.Name) {
			comment = ""
		}
		fmt.Fprintf(&out, "%-50s %-24s # %s\n", comment+f.Name+":", r.yaml(f), r.Source(f.Name))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// aboutReading are flags that say how to read flags.
var aboutReading = []string{"config", "print-config", "help"}

// yaml is the value of f as a YAML scalar or list.
func (r *Report) yaml(f *table.Flag) string {
	if f.Kind < table.Ints {
		return yamlScalar(r.parser.text(f))
	}
	v := r.parser.field(f.To)
	parts := make([]string, v.Len())
	for i := range parts {
		parts[i] = yamlScalar(scalarText(v.Index(i)))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

var plainScalar = regexp.MustCompile(`^[A-Za-z0-9_./+-]+$`)

func yamlScalar(text string) string {
	switch {
	case text == "":
		return "null"
	case plainScalar.MatchString(text):
		return text
	}
	return strconv.Quote(text)
}

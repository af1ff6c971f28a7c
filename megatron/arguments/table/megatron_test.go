package table

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"monotron/internal/argv"
)

// theirs is one flag of Megatron-LM's parser.
type theirs struct {
	Names   []string
	NArgs   any `json:"nargs"` // 0, 1, 3, "+", "*"
	Type    string
	Choices []any
	Default any
}

func (m theirs) name(i int) string {
	return strings.ReplaceAll(strings.TrimLeft(m.Names[i], "-"), "_", "-")
}

// megatron is every flag of Megatron-LM's parser (testdata/README.md).
func megatron(t *testing.T) (all []theirs) {
	t.Helper()
	file, err := os.Open("testdata/megatron-flags.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var m theirs
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	if len(all) != 838 {
		t.Fatalf("%d flags in testdata, want 838", len(all))
	}
	return all
}

// Claim: every name of Megatron-LM's parser is in the table, and the spellings of
// one flag are in one row.
func TestEveryMegatronFlagIsKnown(t *testing.T) {
	for _, m := range megatron(t) {
		first := Find(m.name(0))
		for i := range m.Names {
			if f := Find(m.name(i)); f == nil || f != first && !strings.HasPrefix(m.name(i), "no-") {
				t.Errorf("%s: not in the table, or not in the row of %s", m.Names[i], m.Names[0])
			}
		}
	}
}

// Claim: a flag takes as many values as there, whatever becomes of it, so that
// what follows it is read rightly.
func TestArityIsMegatrons(t *testing.T) {
	for _, m := range megatron(t) {
		f := Find(m.name(0))
		have := f.Arity()
		if have == argv.Any && f.Kind == Strings && f.Class != Works {
			continue // a list, read leniently
		}
		want := map[string]argv.Arity{"0": argv.Switch, "1": argv.One, "+": argv.Many, "*": argv.Any, "3": argv.Many}[fmt.Sprint(m.NArgs)]
		if have != want && f.Differs == "" {
			t.Errorf("--%s: arity %d, in Megatron-LM %v", f.Name, have, m.NArgs)
		}
	}
}

// Claim: where a flag works, its type, choices and default are Megatron-LM's, or
// the table says why not; and it says so only where they differ.
func TestWorkingFlagsAreMegatrons(t *testing.T) {
	differing := map[string]bool{}
	for _, m := range megatron(t) {
		f := Find(m.name(0))
		why := difference(f, m)
		differing[f.Name] = differing[f.Name] || why != ""
		if f.Class == Works && why != "" && f.Differs == "" {
			t.Errorf("--%s: %s; flags.md does not say why", f.Name, why)
		}
	}
	for _, f := range All() {
		if f.Differs != "" && !differing[f.Name] {
			t.Errorf("--%s: the table says that it differs from Megatron-LM (%s); it does not", f.Name, f.Differs)
		}
	}
}

// Claim: a flag that is accepted without effect accepts every value that
// Megatron-LM does, unless the table refuses it with a reason.
func TestAcceptedFlagsTakeMegatronsValues(t *testing.T) {
	for _, m := range megatron(t) {
		f := Find(m.name(0))
		if f.Class != Accepted || f.Choices == nil || f.Differs != "" {
			continue
		}
		for _, c := range m.Choices {
			if text := spelled(c); !slices.Contains(f.Choices, text) && f.Refuse[text] == "" && f.Same[text] == "" {
				t.Errorf("--%s %s is neither taken nor refused with a reason", f.Name, text)
			}
		}
	}
}

// difference says how a row's values are unlike Megatron-LM's; "" if they are alike.
func difference(f *Flag, m theirs) string {
	if f.Kind == Switch && fmt.Sprint(m.NArgs) == "0" {
		return ""
	}
	var mine, choices []string
	mine = append(append(mine, f.Choices...), slices.Collect(maps.Keys(f.Refuse))...)
	if f.Kind == String {
		mine = append(mine, slices.Collect(maps.Keys(f.Same))...)
	}
	for _, c := range m.Choices {
		choices = append(choices, spelled(c))
	}
	slices.Sort(mine)
	slices.Sort(choices)
	kind := map[string]string{"int": "int", "float": "float", "str": "string", "": "string", "enum_type_handler": "string", "moe_freq_type": "string", "la_freq_type": "string", "no_rope_freq_type": "string"}[m.Type]
	arity := map[string]argv.Arity{"1": argv.One, "+": argv.Many, "*": argv.Any, "3": argv.Many}[fmt.Sprint(m.NArgs)]
	switch {
	case f.Arity() != arity:
		return fmt.Sprintf("%v values there", m.NArgs)
	case strings.TrimSuffix(f.Kind.String(), "s") != kind:
		return fmt.Sprintf("a %s here, %s there", f.Kind, m.Type)
	case !slices.Equal(slices.Compact(mine), slices.Compact(choices)):
		return fmt.Sprintf("choices %q here, %q there", mine, choices)
	case !sameDefault(f, spelled(m.Default)):
		return fmt.Sprintf("default %q here, %q there", f.Default, spelled(m.Default))
	}
	return ""
}

// sameDefault compares numbers by value.
func sameDefault(f *Flag, theirs string) bool {
	if f.Kind.Numeric() && f.Default != "" && theirs != "" {
		_, a, ok1 := f.Kind.number(f.Default)
		_, b, ok2 := f.Kind.number(theirs)
		return ok1 && ok2 && a == b
	}
	return f.Default == theirs
}

// spelled is a value of the parser as on a command line.
func spelled(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []any:
		var words []string
		for _, one := range v {
			words = append(words, spelled(one))
		}
		return strings.Join(words, " ")
	}
	text := fmt.Sprint(v)
	if at := strings.LastIndex(text, "AttnBackend."); at == 0 {
		return text[len("AttnBackend."):]
	}
	return text
}

// Claim: whoever works or is to work says from where to where its numbers go.
func TestEveryNumberHasARange(t *testing.T) {
	for _, f := range All() {
		if f.Class == Works && f.Kind.Numeric() && f.Range == nil && f.Choices == nil {
			t.Errorf("--%s takes any number", f.Name)
		}
		for _, text := range strings.Fields(f.Default) {
			if _, err := f.Number(text); f.Kind.Numeric() && err != nil {
				t.Errorf("the default is out of range: %v", err)
			}
		}
	}
}

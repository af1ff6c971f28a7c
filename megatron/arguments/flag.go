// Package arguments is the command line of pretrain_gpt: one table of flags
// (table_*.go), read into the typed Configs of their owners, derived and checked
// all at once.
//
// Reading order: flag.go (what a row says), table_*.go (the rows), parse.go (from
// argument list, file and checkpoint to values), build.go (from values to Config),
// derive*.go (what follows and what must hold), report.go, help.go and docs.go
// (what a user sees).
package arguments

import (
	"fmt"
	"slices"
	"strings"

	"monotron/flags"
)

// Class says what this program does with a flag.
type Class int

const (
	Works    Class = iota
	Accepted       // understood, but nothing changes here; said once
	Refused        // an error that says why, and what to use
)

// notYet tells that this program reads and checks a flag but cannot train with
// it; derive_layout.go and derive_experts.go refuse what asks for it.
func (f *Flag) notYet() bool {
	return f.Class == Works && (f.Owner == ownMoE || slices.Contains([]string{"context-parallel-size", "cp-comm-type",
		"hierarchical-context-parallel-sizes", "expert-model-parallel-size", "expert-tensor-parallel-size"}, f.Name))
}

func (c Class) String() string { return [...]string{"works", "accepted", "refused"}[c] }

// Kind is the type of a flag's values.
type Kind int

const (
	Switch Kind = iota
	Int
	Float
	String
	Ints // several values
	Floats
	Strings
)

func (k Kind) String() string {
	return [...]string{"switch", "int", "float", "string", "ints", "floats", "strings"}[k]
}

// Flag is one row of the table.
type Flag struct {
	Name    string
	Aliases []string
	Kind    Kind
	Default string // as on a command line; several values are separated by spaces
	To      string // field of build that the value goes to; with "!" the switch clears it
	Help    string
	Owner   string // group of --help

	Class   Class
	Why     string            // Accepted and Refused: the reason, and what to use
	Choices []string          // the values that work; nil: any
	Refuse  map[string]string // values that are refused, with the reason
	Same    map[string]string // other spellings of a value
	Count   int               // exact number of values; 0: any
	Empty   string            // value when the name stands alone (optional value)
	Repeat  bool              // values of several occurrences add up
}

// works is a row whose value ends in the Config field named to.
func works(name string, kind Kind, def, to, help string) Flag {
	return Flag{Name: name, Kind: kind, Default: def, To: to, Help: help}
}

// accepted is a row that changes nothing here, and why.
func accepted(name string, kind Kind, def, why string) Flag {
	return Flag{Name: name, Kind: kind, Default: def, Class: Accepted, Why: why}
}

// refused is a row that ends the run, why, and what to use.
func refused(name string, kind Kind, why string) Flag {
	return Flag{Name: name, Kind: kind, Class: Refused, Why: why}
}

func (f Flag) alias(names ...string) Flag   { f.Aliases = names; return f }
func (f Flag) choices(names ...string) Flag { f.Choices = names; return f }
func (f Flag) count(n int) Flag             { f.Count = n; return f }
func (f Flag) repeats() Flag                { f.Repeat = true; return f }
func (f Flag) alone(value string) Flag      { f.Empty = value; return f }

// but refuses some values of a flag that otherwise works.
func (f Flag) but(why string, values ...string) Flag {
	f.Refuse = copyOf(f.Refuse)
	for _, v := range values {
		f.Refuse[v] = why
	}
	return f
}

// same lets a value be spelled in another way.
func (f Flag) same(spelling, value string) Flag {
	f.Same = copyOf(f.Same)
	f.Same[spelling] = value
	return f
}

func copyOf(m map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

// Arity is what the argument list's reader needs to know.
func (f *Flag) Arity() flags.Arity {
	switch {
	case f.Empty != "":
		return flags.Any
	case f.Kind == Switch:
		return flags.Switch
	case f.Kind == Strings && f.Class != Works:
		return flags.Any
	case f.Kind >= Ints:
		return flags.Many
	}
	return flags.One
}

// owned puts rows under one owner.
func owned(owner string, rows ...Flag) []Flag {
	for i := range rows {
		rows[i].Owner = owner
	}
	return rows
}

// table is every row; index finds a row by any of its names.
var (
	table = slices.Concat(modelFlags, oldModelFlags, expertFlags, layoutFlags, distributedFlags, trainingFlags, optimizerFlags,
		precisionFlags, recomputeFlags, checkpointFlags, dataFlags, loggingFlags, ownFlags, deepspeedFlags, elsewhereFlags)
	index = indexOf(table)
)

func indexOf(rows []Flag) map[string]*Flag {
	byName := map[string]*Flag{}
	for i := range rows {
		for _, name := range append([]string{rows[i].Name}, rows[i].Aliases...) {
			if byName[name] != nil {
				panic(fmt.Sprintf("arguments: two rows for --%s", name))
			}
			byName[name] = &rows[i]
		}
	}
	return byName
}

// Lookup finds a flag by name (dashes or underscores, no leading dashes).
func Lookup(name string) (Flag, bool) {
	f, ok := index[strings.ReplaceAll(name, "_", "-")]
	if !ok {
		return Flag{}, false
	}
	return *f, true
}

// All lists the table's rows in the order of --help.
func All() []Flag { return slices.Clone(table) }

func arities() flags.Set {
	set := flags.Set{}
	for name, f := range index {
		set[name] = f.Arity()
	}
	return set
}

package table

import (
	"maps"

	"monotron/internal/argv"
)

// Class says what this program does with a flag.
type Class int

const (
	Works    Class = iota
	Accepted       // understood, but nothing changes here; said once
	Refused        // an error that says why, and what to use
)

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
	To      string // field of the Config in the making that the value goes to; with "!" the switch clears it
	Help    string
	Owner   string // group of --help

	Class   Class
	Why     string            // Accepted and Refused: the reason, and what to use
	NotYet  bool              // this program is to have it: read and checked, but nothing trains with it
	Instead []string          // Refused: the flags to use, which are then not called missing
	Differs string            // from Megatron-LM in arity, type, choices or default: how, and why
	Choices []string          // the values that work; nil: any
	Refuse  map[string]string // values that are refused, with the reason
	Same    map[string]string // other spellings of a value
	Range   *Range            // of each number; nil: any
	Count   int               // exact number of values; 0: any
	Empty   string            // value when the name has none (optional value)
	Repeat  bool              // values of several occurrences add up

	row int // position in the table
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
func (f Flag) instead(names ...string) Flag { f.Instead = names; return f }
func (f Flag) differs(how string) Flag      { f.Differs = how; return f }

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

// copyOf is m, or an empty map: rows are values and share nothing.
func copyOf(m map[string]string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	return out
}

// Arity is what the argument list's reader needs to know.
func (f *Flag) Arity() argv.Arity {
	switch {
	case f.Empty != "":
		return argv.Any
	case f.Kind == Switch:
		return argv.Switch
	case f.Kind == Strings && f.Class != Works:
		return argv.Any
	case f.Kind >= Ints:
		return argv.Many
	}
	return argv.One
}

// owned puts rows under one owner.
func owned(owner string, rows ...Flag) []Flag {
	for i := range rows {
		rows[i].Owner = owner
	}
	return rows
}

// allNotYet marks rows that this program is to have.
func allNotYet(rows ...Flag) []Flag {
	for i := range rows {
		rows[i].NotYet = true
	}
	return rows
}

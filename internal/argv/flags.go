// Package argv reads Megatron-style command lines: flags that take several
// values (`--data-path 0.3 a 0.7 b`), a value that starts with a dash, one
// spelling with dashes and underscores, unknown names answered with the nearest
// ones, and all problems of a line reported together. urfave/cli sees the result. choice.go words a wrong choice, number.go reads
// numbers as Python does.
package argv

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"monotron/internal/exitcode"
)

// Arity says how many values follow a flag's name.
type Arity int

const (
	Switch Arity = iota // none: the flag's presence is its value
	One
	Many // one or more, up to the next known flag
	Any  // none or more
)

// Set maps a flag's name, without the leading dashes, to its arity.
type Set map[string]Arity

// Given is one flag as it stood on the command line.
type Given struct {
	Name   string // with dashes only, no leading ones
	Values []string
	Index  int // index in the argument list, for messages
}

// Split takes args (without the program's name) apart. Everything that is not a
// flag or a flag's value is returned in rest. The error, if any, names every
// problem and exits with exitcode.Usage.
func Split(set Set, args []string) (given []Given, rest []string, err error) {
	var problems []error
	for i := 0; i < len(args); i++ {
		name, inline, isFlag := flagName(args[i])
		if letter, short := shortName(args[i]); short {
			if name, isFlag = shorts[letter], true; set[name] == Switch { // not known, or no such short form
				problems = append(problems, &Unknown{Name: letter, Near: beginning(set, letter), Short: true})
				continue
			}
		}
		if !isFlag {
			rest = append(rest, args[i])
			continue
		}
		if name == "" { // a bare --: what follows is not a flag
			rest = append(rest, args[i+1:]...)
			break
		}
		arity, known := set[name]
		if !known {
			problems = append(problems, &Unknown{Name: name, Near: Nearest(set, name)})
			for inline == nil && i+1 < len(args) && !isFlagLike(args[i+1]) {
				i++
			}
			continue
		}
		g := Given{Name: name, Index: i}
		if inline != nil {
			g.Values = append(g.Values, *inline)
		} else if arity != Switch {
			for i+1 < len(args) && !isFlagLike(args[i+1]) && !ends(g.Values, args[i+1]) {
				i++
				g.Values = append(g.Values, args[i])
				if arity == One {
					break
				}
			}
		}
		switch {
		case arity == Switch && inline != nil:
			problems = append(problems, fmt.Errorf("--%s is a switch and accepts no value, but has %q", name, *inline))
		case (arity == One || arity == Many) && len(g.Values) == 0:
			problems = append(problems, fmt.Errorf("--%s needs a value", name))
		}
		given = append(given, g)
	}
	return given, rest, exitcode.With(exitcode.Usage, errors.Join(problems...))
}

// Part divides args into the flags of set, with their values, and everything else
// in its order.
func Part(set Set, args []string) (own, others []string) {
	for i := 0; i < len(args); i++ {
		name, inline, isFlag := flagName(args[i])
		arity, known := set[name]
		if !isFlag || !known {
			others = append(others, args[i])
			continue
		}
		own = append(own, args[i])
		for inline == nil && arity != Switch && i+1 < len(args) && !isFlagLike(args[i+1]) {
			i++
			own = append(own, args[i])
			if arity == One {
				break
			}
		}
	}
	return own, others
}

// Dashed is args with a bare -- in front of the first word that is neither a flag of set nor a value of one, as
// torchrun reads a command line. What follows an unknown flag may be its value, so there it is in front of the first
// of the names. Without such a word, or with a -- already, args are as they were.
func Dashed(set Set, args, names []string) []string {
	for i := 0; i < len(args); i++ {
		name, inline, isFlag := flagName(args[i])
		if !isFlag {
			return slices.Concat(args[:i], []string{"--"}, args[i:])
		}
		arity, known := set[name]
		if name == "" {
			return args
		}
		if !known {
			if at := slices.IndexFunc(args[i:], func(word string) bool { return slices.Contains(names, word) }); at >= 0 && !slices.Contains(args[i:i+at], "--") {
				return slices.Concat(args[:i+at], []string{"--"}, args[i+at:])
			}
			return args
		}
		if arity == One && inline == nil {
			i++
		}
	}
	return args
}

// ForCLI writes given back as a list that urfave/cli understands: every value
// of a Many flag repeats the flag's name.
func ForCLI(given []Given) []string {
	var out []string
	for _, g := range given {
		if len(g.Values) == 0 {
			out = append(out, "--"+g.Name)
		}
		for _, v := range g.Values {
			out = append(out, "--"+g.Name+"="+v)
		}
	}
	return out
}

func flagName(arg string) (name string, inline *string, ok bool) {
	if !strings.HasPrefix(arg, "--") {
		return "", nil, false
	}
	name = arg[2:]
	if at := strings.IndexByte(name, '='); at >= 0 {
		v := name[at+1:]
		inline, name = &v, name[:at]
	}
	return strings.ReplaceAll(name, "_", "-"), inline, true
}

// shorts are the flags that have a short form in the commands that know them.
var shorts = map[string]string{"o": "output"}

// shortName is the letter of a short form as -o. Where a flag's value is due, it is a value.
func shortName(arg string) (letter string, ok bool) {
	if len(arg) != 2 || arg[0] != '-' || (arg[1]|0x20 < 'a' || arg[1]|0x20 > 'z') {
		return "", false
	}
	return arg[1:], true
}

// ends reports whether a short form ends the values of a flag that takes several; as its first
// value it is one.
func ends(values []string, arg string) bool {
	_, short := shortName(arg)
	return short && len(values) > 0
}

// beginning are the names that begin with a letter, where they are few.
func beginning(set Set, letter string) (names []string) {
	for name := range set {
		if len(name) > 1 && strings.EqualFold(name[:1], letter) {
			names = append(names, name)
		}
	}
	if sort.Strings(names); len(names) > 3 {
		return nil
	}
	return names
}

// isFlagLike reports whether arg is a flag; `-1` and `-` are values.
func isFlagLike(arg string) bool {
	_, _, ok := flagName(arg)
	return ok
}

// Unknown is a flag that is in no set.
type Unknown struct {
	Name string
	Near []string // known names like it, the nearest first

	Instead string // what another program's flag of this name is here; "": not known

	Short bool // Name is a letter that stood behind one dash
}

func (u *Unknown) Error() string {
	dashes := "--"
	if u.Short {
		dashes = "-"
	}
	if u.Instead != "" {
		return fmt.Sprintf("unknown flag %s%s of Megatron: %s", dashes, u.Name, u.Instead)
	}
	if len(u.Near) > 0 {
		return fmt.Sprintf("unknown flag %s%s; did you mean --%s?", dashes, u.Name, strings.Join(u.Near, " or --"))
	}
	return fmt.Sprintf("unknown flag %s%s; --help-all lists all flags", dashes, u.Name)
}

// Explain adds to the unknown flags in an error of Split what to use instead, by their names.
func Explain(err error, instead map[string]string) {
	switch e := err.(type) {
	case *Unknown:
		e.Instead = instead[e.Name]
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			Explain(inner, instead)
		}
	case interface{ Unwrap() error }:
		Explain(e.Unwrap(), instead)
	}
}

// Nearest lists up to three known names within a small edit distance of name, or
// that continue where it ends, else those that have all of its words; none for names far longer than any flag, whose distances would take long.
func Nearest(set Set, name string) []string {
	type near struct {
		name string
		far  int
	}
	limit := max(2, len(name)/4)
	var found []near
	if len(name) > 80 {
		return nil
	}
	for known := range set {
		if d := distance(name, known); d <= limit || len(name) > 3 && strings.HasPrefix(known, name+"-") {
			found = append(found, near{known, d})
		}
	}
	if len(found) == 0 { // what others call num-heads is num-attention-heads here
		for known := range set {
			if words := strings.Split(known, "-"); within(strings.Split(name, "-"), words) {
				found = append(found, near{known, len(words)})
			}
		}
	}
	sort.Slice(found, func(i, j int) bool {
		if found[i].far != found[j].far {
			return found[i].far < found[j].far
		}
		return found[i].name < found[j].name
	})
	var names []string
	for _, f := range found[:min(3, len(found))] {
		names = append(names, f.name)
	}
	return names
}

// within reports whether words come in the same order in a longer list. A single short word is in too many.
func within(words, list []string) bool {
	if len(words) == 1 && len(words[0]) < 5 {
		return false
	}
	for _, word := range list {
		if len(words) > 0 && words[0] == word {
			words = words[1:]
		}
	}
	return len(words) == 0
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		last := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := last
			if a[i-1] != b[j-1] {
				cost++
			}
			last = row[j]
			row[j] = min(cost, last+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}

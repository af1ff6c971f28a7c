package table

import (
	"slices"
	"strings"
)

// names are flags that take the same kind of value, separated by spaces; a/b are
// two spellings of one.
type names struct {
	kind Kind
	list string
}

func switches(list string) names { return names{Switch, list} }
func ints(list string) names     { return names{Int, list} }
func floats(list string) names   { return names{Float, list} }
func texts(list string) names    { return names{String, list} }
func several(list string) names  { return names{Strings, list} }

// allAccepted is a family of flags that change nothing here, and why.
func allAccepted(why string, groups ...names) []Flag { return family(Accepted, why, groups) }

// allRefused is a family of flags that end the run, why, and what to use.
func allRefused(why string, groups ...names) []Flag { return family(Refused, why, groups) }

func family(class Class, why string, groups []names) (rows []Flag) {
	for _, g := range groups {
		for _, word := range strings.Fields(g.list) {
			spellings := strings.Split(word, "/")
			rows = append(rows, Flag{Name: spellings[0], Aliases: spellings[1:], Kind: g.kind, Class: class, Why: why})
		}
	}
	return rows
}

// families puts several families under one owner.
func families(owner string, all ...[]Flag) []Flag { return owned(owner, slices.Concat(all...)...) }

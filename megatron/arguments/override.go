package arguments

import (
	"slices"
	"strings"

	"monotron/megatron/arguments/table"
)

// Override adds flags to a command line: a flag given twice counts the last
// time, and -name takes the switch --name away. This is how the variants of the
// golden model cases are written.
func Override(base, add []string) []string {
	out := slices.Clone(base)
	for _, arg := range add {
		if strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && table.Find(arg[1:]) != nil {
			out = slices.DeleteFunc(out, func(a string) bool { return a == "-"+arg })
			continue
		}
		out = append(out, arg)
	}
	return out
}

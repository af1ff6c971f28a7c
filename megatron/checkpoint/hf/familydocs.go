package hf

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Markdown is the table of families for docs/models.md.
func Markdown() string {
	var b strings.Builder
	fmt.Fprintln(&b, "| `model_type` | transformers' class | parts | refused |\n|---|---|---|---|")
	for _, family := range slices.Sorted(maps.Keys(rows)) {
		r := rows[family]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", family, r.architecture, r.about, r.refused)
	}
	return b.String()
}

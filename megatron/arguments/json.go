package arguments

import (
	"encoding/json"
	"io"
	"math"

	"monotron/megatron/arguments/table"
)

// flagJSON is one flag as WriteJSON lists it.
type flagJSON struct {
	Name    string   `json:"name"`
	Aliases []string `json:"aliases,omitempty"`
	Type    string   `json:"type"`            // switch, int, float, string, ints, floats, strings
	Count   int      `json:"count,omitempty"` // exact number of values; absent: one, or any for a list
	Repeat  bool     `json:"repeat,omitempty"`
	Empty   string   `json:"value_when_alone,omitempty"`
	Default string   `json:"default"` // as on a command line
	Choices []string `json:"choices,omitempty"`
	Range   *span    `json:"range,omitempty"`
	Class   string   `json:"class"` // works, accepted, refused, not yet
	Group   string   `json:"group"`
	Help    string   `json:"help"`
}

// span is a table.Range; an end that is infinite is left out.
type span struct {
	Low      *float64 `json:"low,omitempty"`
	High     *float64 `json:"high,omitempty"`
	AboveLow bool     `json:"low_excluded,omitempty"`
	Below    bool     `json:"high_excluded,omitempty"`
}

// WriteJSON writes every flag as an element of one JSON list, in the order of --help.
func WriteJSON(w io.Writer) error {
	all := []flagJSON{}
	for _, f := range table.All() {
		all = append(all, flagJSON{Name: "--" + f.Name, Aliases: dashed(f.Aliases), Type: f.Kind.String(), Count: f.Count, Repeat: f.Repeat,
			Empty: f.Empty, Default: f.Default, Choices: f.Choices, Range: spanOf(f.Range), Class: class(f), Group: f.Owner, Help: reason(f)})
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(all)
}

func dashed(names []string) (all []string) {
	for _, name := range names {
		all = append(all, "--"+name)
	}
	return all
}

func spanOf(r *table.Range) *span {
	if r == nil {
		return nil
	}
	s := &span{AboveLow: r.AboveLow, Below: r.BelowHigh}
	if !math.IsInf(r.Low, 0) {
		s.Low = &r.Low
	}
	if !math.IsInf(r.High, 0) {
		s.High = &r.High
	}
	return s
}

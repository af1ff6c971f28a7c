package layouts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Row is one layout in a report.
type Row struct {
	Model    string  `json:"model"`
	Layout   string  `json:"layout"`
	World    int     `json:"world"`
	Loss     float64 `json:"loss"`
	Norm     float64 `json:"grad_norm"`
	Grad     float64 `json:"gradient"`
	GradOf   string  `json:"gradient_of"`
	Forward  float64 `json:"forward_share"` // of residual streams and token losses, of their bound
	Weight   float64 `json:"weight"`
	WeightOf string  `json:"weight_of"`
	Seconds  float64 `json:"seconds"`
	OK       bool    `json:"ok"`
	Problem  string  `json:"problem,omitempty"`
}

// Report is what was compared.
type Report struct {
	Precision string    `json:"precision"`
	Steps     int       `json:"steps"`
	Bounds    Bounds    `json:"bounds"`
	Rows      []Row     `json:"layouts"`
	Mutants   []*Mutant `json:"mutants,omitempty"`
	Seconds   float64   `json:"seconds"`

	Refused map[string]int `json:"refused,omitempty"` // layouts by what --layout-invariant does not have
}

// Failed counts the layouts that differ and the mutants that nobody saw.
func (r *Report) Failed() (layouts, unseen int) {
	for _, m := range r.Mutants {
		if !m.Caught {
			unseen++
		}
	}
	return failing(r.Rows), unseen
}

// WriteJSON prints the report as one object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// worstShown is how many layouts of a model are printed without all.
const worstShown = 8

// WriteTable prints for each model the layouts that fail and those nearest to
// their bounds, then what was proved.
func (r *Report) WriteTable(w io.Writer, all bool) error {
	var out strings.Builder
	for _, rows := range r.models() {
		r.model(&out, rows, all)
	}
	r.mutants(&out)
	_, unseen := r.Failed()
	if len(r.Rows) > 0 {
		fmt.Fprintln(&out, r.said())
	}
	if len(r.Mutants) > 0 {
		fmt.Fprintf(&out, "%d mutants, %d caught, %d not\n", len(r.Mutants), len(r.Mutants)-unseen, unseen)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// said is what was compared, in a line.
func (r *Report) said() string {
	if r.Bounds == (Bounds{}) {
		return fmt.Sprintf("%s, %d steps: %d layouts, %d differ from one rank in any bit%s; %.1f minutes", r.Precision, r.Steps, len(r.Rows), failing(r.Rows), r.refused(), r.Seconds/60)
	}
	return fmt.Sprintf("%s, %d steps: %d layouts, %d differ from one rank; bounds: loss %g, gradients %g, weights %g; %.1f minutes",
		r.Precision, r.Steps, len(r.Rows), failing(r.Rows), r.Bounds.Loss, r.Bounds.Grad, r.Bounds.Weight, r.Seconds/60)
}

// refused says how many layouts were left out, and why.
func (r *Report) refused() string {
	var reasons []string
	for what, n := range r.Refused {
		reasons = append(reasons, fmt.Sprintf("%d for %s", n, what))
	}
	if len(reasons) == 0 {
		return ""
	}
	slices.Sort(reasons)
	return "; left out: " + strings.Join(reasons, ", ")
}

// models groups the rows.
func (r *Report) models() (groups [][]Row) {
	for _, row := range r.Rows {
		if n := len(groups); n == 0 || groups[n-1][0].Model != row.Model {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], row)
	}
	return groups
}

func (r *Report) model(out *strings.Builder, rows []Row, all bool) {
	shown := r.shown(rows, all)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s\tranks\tloss\tgradient\tweight\t\n", rows[0].Model)
	var problems []string
	for _, row := range shown {
		verdict := "ok"
		if !row.OK {
			verdict = "DIFFERS"
			problems = append(problems, fmt.Sprintf("  %s: %s", row.Layout, row.Problem))
		}
		fmt.Fprintf(table, "  %s\t%d\t%.1e\t%.1e\t%.1e\t%s\n", row.Layout, row.World, row.Loss, row.Grad, row.Weight, verdict)
	}
	_ = table.Flush() // to a strings.Builder
	if rest := len(rows) - len(shown); rest > 0 {
		fmt.Fprintf(out, "  and %d more, closer to one rank (--all lists them)\n", rest)
	}
	for _, p := range problems {
		fmt.Fprintln(out, p)
	}
}

// shown are the rows of a model that are printed: those that fail and those nearest to
// their bounds, or all as they were trained.
func (r *Report) shown(rows []Row, all bool) []Row {
	if all {
		return rows
	}
	sorted := slices.Clone(rows)
	slices.SortStableFunc(sorted, func(a, b Row) int { return cmp.Compare(r.share(b), r.share(a)) })
	return sorted[:min(len(sorted), max(failing(rows), worstShown))]
}

func failing(rows []Row) (count int) {
	for _, row := range rows {
		if !row.OK {
			count++
		}
	}
	return count
}

// share is how much of the bounds a row uses up.
func (r *Report) share(row Row) float64 {
	if !row.OK {
		return 1e300
	}
	return max(share(row.Loss, r.Bounds.Loss), share(row.Grad, r.Bounds.Grad), row.Forward, share(row.Weight, r.Bounds.Weight))
}

func (r *Report) mutants(out *strings.Builder) {
	if len(r.Mutants) == 0 {
		return
	}
	fmt.Fprintln(out, "mutants")
	for _, m := range r.Mutants {
		verdict := "caught: " + m.By
		if !m.Caught {
			verdict = "NOT CAUGHT"
		}
		fmt.Fprintf(out, "  %s\n    under %s; %s\n", m.Name, m.Layout, verdict)
	}
}

package modelcase

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"sort"
	"strings"
	"text/tabwriter"
)

// worstShown is how many lines a group gets without --all.
const worstShown = 10

// WriteTable prints each group's numbers, worst first (all: in the order they
// were computed, every one), a summary line per group, and last the counts.
func (r *Report) WriteTable(w io.Writer, all bool) error {
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s on %s\terror\ttolerance\t\n", r.Case, r.Device)
	for _, group := range r.groups() {
		checks := group.checks
		if !all {
			checks = worst(checks)
		}
		for _, c := range checks {
			fmt.Fprintf(table, "  %s\t%.3g\t%g\t%s\n", c.Name, c.Error, c.Tolerance, verdict(c.OK))
			if c.Note != "" {
				fmt.Fprintf(table, "    %s\t\t\t\n", c.Note)
			}
		}
		fmt.Fprintf(table, "%s: %d of %d within tolerance\t\t\t%s\n", group.name, group.passed, len(group.checks), verdict(group.passed == len(group.checks)))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	passed, failed := r.Counts()
	fmt.Fprintf(&out, "%d passed, %d failed\n", passed, failed)
	_, err := io.WriteString(w, out.String())
	return err
}

func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return "FAIL"
}

type group struct {
	name   string
	checks []Check
	passed int
}

// groups are in the order of their first check.
func (r *Report) groups() []*group {
	var list []*group
	byName := map[string]*group{}
	for _, c := range r.Checks {
		g := byName[c.Group]
		if g == nil {
			g = &group{name: c.Group}
			byName[c.Group] = g
			list = append(list, g)
		}
		g.checks = append(g.checks, c)
		if c.OK {
			g.passed++
		}
	}
	return list
}

// worst are the checks nearest to their tolerance or beyond it.
func worst(checks []Check) []Check {
	sorted := append([]Check(nil), checks...)
	sort.SliceStable(sorted, func(a, b int) bool { return sorted[a].share() > sorted[b].share() })
	return sorted[:min(worstShown, len(sorted))]
}

// share is the error in units of the tolerance.
func (c Check) share() float64 {
	switch {
	case math.IsNaN(c.Error):
		return math.Inf(1)
	case c.Tolerance == 0 && c.Error == 0:
		return 0
	}
	return c.Error / c.Tolerance
}

// Worst is the check nearest to its tolerance or furthest beyond it.
func (r *Report) Worst() Check {
	if len(r.Checks) == 0 {
		return Check{}
	}
	return worst(r.Checks)[0]
}

// WriteJSON prints the report as one JSON object. An error that is not a number
// is -1.
func (r *Report) WriteJSON(w io.Writer) error {
	passed, failed := r.Counts()
	checks := append([]Check(nil), r.Checks...)
	for i := range checks {
		if e := checks[i].Error; math.IsNaN(e) || math.IsInf(e, 0) {
			checks[i].Error = -1
		}
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", " ")
	return encoder.Encode(struct {
		Case   string  `json:"case"`
		Device string  `json:"device"`
		Passed int     `json:"passed"`
		Failed int     `json:"failed"`
		Checks []Check `json:"checks"`
	}{r.Case, r.Device, passed, failed, checks})
}

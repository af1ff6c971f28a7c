package diff

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"monotron/megatron/checkpoint/compare"
	"monotron/tools/internal/command"
)

// defaultWidth where output is not a terminal.
const defaultWidth = 120

func terminalWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 40 {
			return width
		}
	}
	return defaultWidth
}

// table prints the report so that it fits width columns.
func (r *report) table(p *command.Printer, width int) {
	p.Printf("A  %s (%s, iteration %d)\nB  %s (%s, iteration %d)\n", r.A.Path, r.A.Format, r.A.Iteration, r.B.Path, r.B.Format, r.B.Iteration)
	for _, n := range r.Notes {
		p.Printf("note: %s\n", n)
	}
	tensors(p, width, r.Tensors)
	for i, s := range []side{r.A, r.B} {
		if len(s.Apart) > 0 {
			p.Printf("\nstored twice in %c with different values (column A: the value of the first stage, which is read; column B: that of the last stage)", 'A'+i)
			tensors(p, width, s.Apart)
		}
	}
	settings(p, width, "changed in the state", r.State)
	settings(p, width, "changed settings (they do not count)", r.Settings)
	different := 0
	for i := range r.Tensors {
		if !r.Tensors[i].Equal() {
			different++
		}
	}
	p.Printf("\n%d of %d tensors differ", different, r.Compared)
	if len(r.State) > 0 {
		p.Printf(", and %d values of the state", len(r.State))
	}
	p.Printf("\n")
}

func tensors(p *command.Printer, width int, list []compare.Tensor) {
	var rows [][]string
	for i := range list {
		t := &list[i]
		rows = append(rows, append([]string{t.Name}, cells(t)...))
	}
	if len(rows) == 0 {
		return
	}
	rows = slices.Insert(rows, 0, []string{"tensor", "max abs", "max rel", "norm A", "norm B", "differ", "first"})
	p.Printf("\n")
	grid(p, width, rows)
}

// cells are a tensor's columns behind its name.
func cells(t *compare.Tensor) []string {
	switch {
	case t.DTypeA == "":
		return []string{"", "", "", "", "", fmt.Sprintf("only in B: %s%v", t.DTypeB, t.ShapeB)}
	case t.DTypeB == "":
		return []string{"", "", "", "", "", fmt.Sprintf("only in A: %s%v", t.DTypeA, t.ShapeA)}
	case !slices.Equal(t.ShapeA, t.ShapeB):
		return []string{"", "", "", "", "", fmt.Sprintf("shapes %v and %v", t.ShapeA, t.ShapeB)}
	}
	differ := "-"
	if t.Different > 0 {
		differ = fmt.Sprintf("%.3g%%", 100*float64(t.Different)/float64(t.Elements))
	}
	first := "-"
	if t.First != nil {
		first = fmt.Sprintf("%v %s, %s", t.First, short(t.FirstA), short(t.FirstB))
	}
	if t.NaNA+t.NaNB > 0 {
		first += fmt.Sprintf("; NaN %d, %d", t.NaNA, t.NaNB)
	}
	if t.DTypeA != t.DTypeB {
		first += fmt.Sprintf("; %s, %s", t.DTypeA, t.DTypeB)
	}
	return []string{fmt.Sprintf("%.2e", t.MaxAbs), fmt.Sprintf("%.2e", t.MaxRel), fmt.Sprintf("%.5g", t.NormA), fmt.Sprintf("%.5g", t.NormB), differ, first}
}

func short(number string) string {
	if len(number) > 12 {
		var v float64
		if _, err := fmt.Sscan(number, &v); err == nil {
			return fmt.Sprintf("%.6g", v)
		}
	}
	return number
}

func settings(p *command.Printer, width int, title string, list []compare.Setting) {
	if len(list) == 0 {
		return
	}
	p.Printf("\n%s\n", title)
	var rows [][]string
	for _, s := range list {
		rows = append(rows, []string{"  " + s.Name, s.A, "->", s.B})
	}
	grid(p, width, rows)
}

// grid aligns rows; where they are too wide, names lose their middle and the
// last column its end.
func grid(p *command.Printer, width int, rows [][]string) {
	// What each column would take.
	widest := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widest[i] = max(widest[i], len([]rune(cell)))
		}
	}
	// The first and last columns share what the others leave.
	last := len(widest) - 1
	fixed := 0
	for _, w := range widest[1:last] {
		fixed += w + 2
	}
	space := max(40, width-fixed-2)
	widest[last] = min(widest[last], max(space/3, space-widest[0]))
	widest[0] = distinct(rows, min(widest[0], max(20, space-widest[last])))
	widest[last] = min(widest[last], max(20, space-widest[0]))
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			switch i {
			case 0:
				cell = middle(cell, widest[0])
			case last:
				cell = end(cell, widest[last])
			}
			fmt.Fprintf(&line, "%-*s  ", widest[i], cell)
		}
		p.Printf("%s\n", strings.TrimRight(line.String(), " "))
	}
}

// distinct is the least width from n on at which the first cells, shortened, still differ
// where they did: those of optimizer.exp_avg and optimizer.exp_avg_sq lose the same middle.
func distinct(rows [][]string, n int) int {
	full := map[string]bool{}
	for _, row := range rows {
		full[row[0]] = true
	}
	for ; ; n++ {
		shortened := map[string]bool{}
		for name := range full {
			shortened[middle(name, n)] = true
		}
		if len(shortened) == len(full) {
			return n
		}
	}
}

// middle cuts a text to n runes by leaving out its middle.
func middle(text string, n int) string {
	r := []rune(text)
	if len(r) <= n {
		return text
	}
	head := (n - 1) / 3
	return string(r[:head]) + "…" + string(r[len(r)-(n-1-head):])
}

// end cuts a text to n runes.
func end(text string, n int) string {
	r := []rune(text)
	if len(r) <= n {
		return text
	}
	return string(r[:n-1]) + "…"
}

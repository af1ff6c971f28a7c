package dashboard

import (
	"math"
	"sort"

	"monotron/megatron/telemetry"
)

// Table is a row of numbers an entry of the log, kept as one list a field; nan: not known.
type Table [][]float64

func newTable() Table { return make(Table, len(Fields)) }

// Len is how many rows there are.
func (t Table) Len() int {
	if t == nil {
		return 0
	}
	return len(t[0])
}

func (t Table) add(row []telemetry.Number) {
	for i, n := range row {
		t[i] = append(t[i], float64(n))
	}
}

// from is the first row of an iteration or a later one; rows are by iteration.
func (t Table) from(iteration int) int { return sort.SearchFloat64s(t[0], float64(iteration)) }

// cut drops the rows from one on, and says how many those were.
func (t Table) cut(at int) int {
	dropped := t.Len() - at
	for i := range t {
		t[i] = t[i][:at]
	}
	return dropped
}

// Row is one row.
func (t Table) Row(i int) []telemetry.Number {
	row := make([]telemetry.Number, len(t))
	for f := range t {
		row[f] = telemetry.Number(t[f][i])
	}
	return row
}

// Of are the values of a field.
func (t Table) Of(name string) []float64 { return t[fieldAt[name]] }

// Last is the last value of a field.
func (t Table) Last(name string) float64 {
	if t.Len() == 0 {
		return math.NaN()
	}
	return t.Of(name)[t.Len()-1]
}

// extremes are the fields whose highest and lowest values are kept of a long log.
var extremes = []string{"loss", "grad_norm", "seconds", "data_seconds", "tokens_per_second"}

// thinned are at most about n rows: all there are, or of each stretch of them the first and
// those in which a field has its highest or lowest value. Every row is one of the log's.
func (t Table) thinned(n int) Table {
	if t.Len() <= n {
		return t
	}
	thin := newTable()
	stretch := (t.Len()*(2*len(extremes)+1) + n - 1) / n
	for a := 0; a < t.Len(); a += stretch {
		b := min(a+stretch, t.Len())
		for _, i := range t.striking(a, b) {
			thin.add(t.Row(i))
		}
	}
	if last := t.Len() - 1; thin.Last("iteration") != t[0][last] {
		thin.add(t.Row(last))
	}
	return thin
}

// striking are the rows of [a, b) that thinned keeps, in their order.
func (t Table) striking(a, b int) []int {
	keep := map[int]bool{a: true}
	for _, name := range extremes {
		values := t.Of(name)
		low, high := -1, -1
		for i := a; i < b; i++ {
			if math.IsNaN(values[i]) {
				continue
			}
			if low < 0 || values[i] < values[low] {
				low = i
			}
			if high < 0 || values[i] > values[high] {
				high = i
			}
		}
		if low >= 0 {
			keep[low], keep[high] = true, true
		}
	}
	rows := make([]int, 0, len(keep))
	for i := range keep {
		rows = append(rows, i)
	}
	sort.Ints(rows)
	return rows
}

// numbers are the table as JSON has it.
func (t Table) numbers() [][]telemetry.Number {
	out := make([][]telemetry.Number, len(t))
	for f := range t {
		out[f] = make([]telemetry.Number, len(t[f]))
		for i, v := range t[f] {
			out[f][i] = telemetry.Number(v)
		}
	}
	return out
}

package dataset

import (
	"fmt"
	"math"
	"regexp"
	"strconv"

	"monotron/internal/exitcode"
)

// Split is one of the three parts of the data.
type Split int

const (
	Train Split = iota
	Valid
	Test
)

func (s Split) String() string { return [...]string{"train", "valid", "test"}[s] }

// defaultSplit is what Megatron takes for --data-path without --split.
const defaultSplit = "969, 30, 1"

// splitRow is the part of the data one split takes, from..to in [0, 1]; nil takes nothing.
type splitRow *[2]float64

var splitNumber = regexp.MustCompile(`[.0-9]+`)

// parseSplit reads --split: up to three weights, normalised.
func parseSplit(text string) (rows [3]splitRow, err error) {
	// As Megatron reads it: the numbers of the text, whatever stands between them.
	found := splitNumber.FindAllString(text, -1)
	if len(found) == 0 || len(found) > 3 {
		return rows, exitcode.Errorf(exitcode.Usage, "--split %q must have one to three numbers (training, validation, test)", text)
	}
	var weights [3]float64
	sum := 0.0
	for i, f := range found {
		w, err := strconv.ParseFloat(f, 64)
		if err != nil || math.IsInf(w, 0) {
			return rows, exitcode.Errorf(exitcode.Usage, "--split %q: %q is not a number", text, f)
		}
		weights[i] = w
		sum += w
	}
	if sum == 0 {
		return rows, exitcode.Errorf(exitcode.Usage, "--split %q: at least one number must be above zero", text)
	}
	// Neighbouring fractions of the sequences; a part of zero has none.
	end := 0.0
	for i, w := range weights {
		begin := end
		end += w / sum
		if begin < end {
			rows[i] = &[2]float64{begin, end}
		}
	}
	return rows, nil
}

// sequences is the half-open range of n sequences that a row takes: Python's
// round, to the nearest and half to even.
func sequences(row splitRow, n int64) (first, end int64) {
	return int64(math.RoundToEven(row[0] * float64(n))), int64(math.RoundToEven(row[1] * float64(n)))
}

// pySplit is the split_matrix entry of a cache description. The very first
// number is an int in Megatron, so it prints as 0.
func pySplit(rows [3]splitRow) any {
	list := make([]any, 3)
	for i, row := range rows {
		if row == nil {
			continue
		}
		begin := any(row[0])
		if i == 0 {
			begin = int64(0)
		}
		list[i] = []any{begin, row[1]}
	}
	return list
}

// smallSplit says which --split n sequences are enough for.
func smallSplit(n int64) string {
	switch {
	case n >= 3:
		return fmt.Sprintf(", or give --split %d,1,1", n-2)
	case n == 2:
		return ", or give --split 1,1,0, which leaves no test data"
	case n == 1:
		return ", split one text by preprocess_data --text-split 0.9, or give --split 1,0,0 --eval-iters 0 to train without validation"
	}
	return ""
}

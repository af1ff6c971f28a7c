package modelcase

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// exclusion is which elements of a tensor are left out: a text as Python would index them,
// "[32:64]" or "reshaped [4, 3, -1]: [:, 1]", or ranges from, to.
type exclusion struct {
	text   string
	ranges [][2]int
}

// UnmarshalJSON reads either.
func (e *exclusion) UnmarshalJSON(raw []byte) error {
	if bytes.HasPrefix(raw, []byte("[")) {
		return json.Unmarshal(raw, &e.ranges)
	}
	return json.Unmarshal(raw, &e.text)
}

func (e *exclusion) elements(n int) ([]bool, error) {
	if e.ranges == nil {
		return elements(e.text, n)
	}
	out := make([]bool, n)
	for _, r := range e.ranges {
		if r[0] < 0 || r[0] > r[1] || r[1] > n {
			return nil, fmt.Errorf("%v is not a range within %d elements", r, n)
		}
		for i := r[0]; i < r[1]; i++ {
			out[i] = true
		}
	}
	return out, nil
}

// excluded returns which elements of the tensor `name` with n elements the case
// leaves out of a comparison; nil: none.
func (c *caseFile) excluded(name string, n int) ([]bool, error) {
	for pattern, which := range c.Exclude {
		if ok, err := path.Match(pattern, name); err != nil || !ok {
			continue
		}
		out, err := which.elements(n)
		if err != nil {
			return nil, c.bad("exclude_from_param_comparison %q: %v", pattern, err)
		}
		return out, nil
	}
	return nil, nil
}

// elements marks what an index of that form selects of n elements.
func elements(text string, n int) ([]bool, error) {
	// The shape that the index refers to.
	shape, index := []int{n}, text
	if rest, ok := strings.CutPrefix(text, "reshaped "); ok {
		dims, after, found := strings.Cut(rest, ":")
		if !found {
			return nil, fmt.Errorf("%q must have an index after the shape, as in reshaped SHAPE:INDEX", text)
		}
		var err error
		if shape, err = reshaped(dims, n); err != nil {
			return nil, err
		}
		index = after
	}
	// A range in each dimension; those that are not given are complete.
	parts, err := bracketed(index)
	if err != nil {
		return nil, err
	}
	if len(parts) > len(shape) {
		return nil, fmt.Errorf("%q has %d indices for %d dimensions", text, len(parts), len(shape))
	}
	spans := make([][2]int, len(shape))
	for d, size := range shape {
		spans[d] = [2]int{0, size}
		if d < len(parts) {
			if spans[d], err = span(parts[d], size); err != nil {
				return nil, err
			}
		}
	}
	return marked(shape, spans, n), nil
}

func marked(shape []int, spans [][2]int, n int) []bool {
	out := make([]bool, n)
	for i := range out {
		out[i] = true
		for d, at := len(shape)-1, i; d >= 0; d-- {
			k := at % shape[d]
			at /= shape[d]
			out[i] = out[i] && k >= spans[d][0] && k < spans[d][1]
		}
	}
	return out
}

func bracketed(text string) ([]string, error) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "[") || !strings.HasSuffix(text, "]") {
		return nil, fmt.Errorf("%q is not in brackets", text)
	}
	parts := strings.Split(text[1:len(text)-1], ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts, nil
}

// reshaped reads a shape of n elements; one size may be -1.
func reshaped(text string, n int) ([]int, error) {
	parts, err := bracketed(text)
	if err != nil {
		return nil, err
	}
	// Sizes, of which one may follow from the others.
	shape, open, known := make([]int, len(parts)), -1, 1
	for i, p := range parts {
		if shape[i], err = strconv.Atoi(p); err != nil {
			return nil, err
		}
		switch {
		case shape[i] == -1 && open < 0:
			open = i
		case shape[i] < 1 || shape[i] > n:
			return nil, fmt.Errorf("%s is not a shape of %d elements", text, n)
		default:
			known *= shape[i]
		}
	}
	if open >= 0 {
		shape[open] = n / known
		known *= shape[open]
	}
	if known != n {
		return nil, fmt.Errorf("%s is not a shape of %d elements", text, n)
	}
	return shape, nil
}

// span reads ":", "a:b" or "a".
func span(text string, size int) ([2]int, error) {
	from, to, isRange := strings.Cut(text, ":")
	out := [2]int{0, size}
	var err error
	if from != "" {
		out[0], err = strconv.Atoi(from)
	}
	switch {
	case !isRange:
		out[1] = out[0] + 1
	case to != "" && err == nil:
		out[1], err = strconv.Atoi(to)
	}
	if err != nil || out[0] < 0 || out[1] > size || out[0] > out[1] {
		return out, fmt.Errorf("%q is not a range within %d elements", text, size)
	}
	return out, nil
}

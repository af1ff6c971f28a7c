package schedule

import (
	"fmt"
	"strconv"
	"strings"
)

// byLayout reads --pipeline-model-parallel-layout: virtual stages between |, in
// the order activations pass them; tokens E (embedding), t (layer), m (multi-token
// prediction, which stand right before the head), L (head); x*n and (..)*n repeat.
func (p *splitting) byLayout() []int {
	const flag = "--pipeline-model-parallel-layout"
	before := len(p.problems)
	// Repeats are written out.
	text, err := expand(p.Layout)
	if err != nil {
		p.problem("%s %s: %v", flag, p.Layout, err)
		return nil
	}
	// As many layers as the model has, predictions right before the head, one embedding first, one head last.
	if layers := strings.Count(text, "t"); layers != p.Layers {
		p.problem("%s %s has %d layers, but --num-layers is %d", flag, p.Layout, layers, p.Layers)
	}
	switch ahead := strings.Count(text, "m"); {
	case ahead > 0 && p.Ahead == 0:
		p.problem("%s %s has multi-token prediction (m), which the model does not have; give --mtp-num-layers, or leave the m out", flag, p.Layout)
	case ahead != p.Ahead:
		p.problem("%s %s has %d layers of multi-token prediction (m), but --mtp-num-layers is %d", flag, p.Layout, ahead, p.Ahead)
	case ahead > 0 && !strings.HasSuffix(text, strings.Repeat("m", ahead)+"L"):
		p.problem("%s %s has multi-token prediction (m) on a stage other than that of the output layer (L); end the layout with %sL", flag, p.Layout, strings.Repeat("m", ahead))
	}
	if strings.Count(text, "E") != 1 || text[0] != 'E' {
		p.problem("%s %s must begin with its only E, the embedding", flag, p.Layout)
	}
	if strings.Count(text, "L") != 1 || text[len(text)-1] != 'L' {
		p.problem("%s %s must end with its only L, the output layer and loss", flag, p.Layout)
	}
	// Stages are dealt to the ranks in turn, so their number is a multiple.
	stages := strings.Split(text, "|")
	if len(stages)%p.Stages != 0 {
		p.problem("%s %s has %d stages, which is not a multiple of --pipeline-model-parallel-size %d: %s", flag, p.Layout, len(stages), p.Stages,
			use(near("--pipeline-model-parallel-size", p.Stages, func(n int) bool { return len(stages)%n == 0 }, len(stages))))
	}
	if p.Stages == 1 && len(stages) > 1 {
		p.problem("%s %s: an interleaved schedule needs --pipeline-model-parallel-size of at least 2", flag, p.Layout)
	}
	if len(p.problems) > before {
		if fits := p.fitting(max(1, len(stages)/p.Stages)); fits != "" {
			p.problem("a layout that fits: %s", fits)
		}
		return nil
	}
	// Layers of each stage.
	counts := make([]int, len(stages))
	for v, stage := range stages {
		counts[v] = strings.Count(stage, "t")
	}
	return counts
}

// LayoutString writes layers per virtual stage as a layout, embedding first, so many layers of
// multi-token prediction and the head last.
func LayoutString(counts []int, ahead int) string {
	var b strings.Builder
	for v, n := range counts {
		if v > 0 {
			b.WriteByte('|')
		} else {
			b.WriteByte('E')
		}
		if n > 3 {
			fmt.Fprintf(&b, "t*%d", n)
		} else {
			b.WriteString(strings.Repeat("t", n))
		}
	}
	return b.String() + strings.Repeat("m", ahead) + "L"
}

// expand writes a layout out, never longer than a line from outside may ask for.
func expand(text string) (string, error) {
	text = strings.ReplaceAll(strings.ReplaceAll(text, " ", ""), ",", "")
	out, rest, err := expandGroup(text, 0)
	switch {
	case err != nil:
		return "", err
	case rest != "":
		return "", fmt.Errorf("a closing parenthesis has no opening parenthesis")
	case out == "":
		return "", fmt.Errorf("the layout is empty")
	}
	return out, nil
}

func expandGroup(text string, depth int) (out, rest string, err error) {
	for text != "" && text[0] != ')' {
		var item string
		if item, text, err = expandItem(text, depth); err != nil {
			return "", "", err
		}
		times := 1
		if strings.HasPrefix(text, "*") {
			digits := leadingDigits(text[1:])
			if times, err = strconv.Atoi(digits); err != nil || times > maxParts {
				return "", "", fmt.Errorf("expected a number of at most %d after *", maxParts)
			}
			text = text[1+len(digits):]
		}
		if len(out)+len(item)*times > 2*maxParts {
			return "", "", fmt.Errorf("the layout has more than %d stages and layers", 2*maxParts)
		}
		out += strings.Repeat(item, times)
	}
	return out, text, nil
}

// expandItem reads a token or a group.
func expandItem(text string, depth int) (item, rest string, err error) {
	item, rest = text[:1], text[1:]
	switch {
	case item == "(" && depth == 8:
		return "", "", fmt.Errorf("parentheses are nested more than 8 deep")
	case item == "(":
		item, rest, err = expandGroup(rest, depth+1)
		if err == nil && rest == "" {
			err = fmt.Errorf("a closing parenthesis is missing")
		}
		if err != nil {
			return "", "", err
		}
		return item, rest[1:], nil
	case !strings.Contains("EtmL|", item):
		return "", "", fmt.Errorf("%q is not a part of a model; use only E, t, m, L and |", item)
	}
	return item, rest, nil
}

func leadingDigits(text string) string {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return text[:i]
		}
	}
	return text
}

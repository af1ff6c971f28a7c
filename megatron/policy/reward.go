package policy

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"

	"monotron/internal/exitcode"
)

// Sampled is an answer to be judged.
type Sampled struct {
	Prompt     json.RawMessage            `json:"prompt"`     // of the row: a text or a list of messages
	Completion string                     `json:"completion"` // without the token that ends it
	Answer     *string                    `json:"-"`          // field answer of the row; nil: it has none
	Fields     map[string]json.RawMessage `json:"-"`          // further fields of the row
}

// Reward is a judge of answers.
type Reward interface {
	// Name is what logs call it.
	Name() string
	// Of gives a number for each answer.
	Of(ctx context.Context, answers []Sampled) ([]float64, error)
}

// Exact gives 1 to an answer that is the row's answer, without regard to white space around it, else 0.
type Exact struct{}

// Name is that of logs.
func (Exact) Name() string { return "exact" }

// Of judges answers. Each row needs a field answer.
func (Exact) Of(_ context.Context, answers []Sampled) ([]float64, error) {
	list := make([]float64, len(answers))
	for i, a := range answers {
		if a.Answer == nil {
			return nil, exitcode.Errorf(exitcode.BadData, "--reward exact: the row with the prompt %.80s has no field \"answer\"; add this field to every row, or use --reward-pattern or --reward-command instead", a.Prompt)
		}
		if strings.TrimSpace(a.Completion) == strings.TrimSpace(*a.Answer) {
			list[i] = 1
		}
	}
	return list, nil
}

// Pattern gives 1 to an answer in which a regular expression matches, where the row has a field answer
// only if the last match, or its first group, is that; else 0.
type Pattern struct{ Match *regexp.Regexp }

// Name is that of logs.
func (Pattern) Name() string { return "pattern" }

// Of judges answers.
func (p Pattern) Of(_ context.Context, answers []Sampled) ([]float64, error) {
	list := make([]float64, len(answers))
	for i, a := range answers {
		all := p.Match.FindAllStringSubmatch(a.Completion, -1)
		if len(all) == 0 {
			continue
		}
		last := all[len(all)-1]
		if a.Answer == nil || strings.TrimSpace(last[min(1, len(last)-1)]) == strings.TrimSpace(*a.Answer) {
			list[i] = 1
		}
	}
	return list, nil
}

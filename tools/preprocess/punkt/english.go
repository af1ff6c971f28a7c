package punkt

import (
	"encoding/json"
	"strings"

	"github.com/neurosnap/sentences/data"

	"monotron/internal/exitcode"
)

// builtInEnglish gives the parameters that are built in: NLTK's English ones, as a
// library for Go carries them.
func builtInEnglish() (*Params, error) {
	text, err := data.Asset("data/english.json")
	if err != nil {
		return nil, exitcode.With(exitcode.Internal, err)
	}
	var in struct{ AbbrevTypes, Collocations, SentStarters, OrthoContext map[string]int }
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, exitcode.With(exitcode.Internal, err)
	}
	p := &Params{map[string]bool{}, map[[2]string]bool{}, map[string]bool{}, in.OrthoContext}
	for word := range in.AbbrevTypes {
		p.abbreviations[word] = true
	}
	for word := range in.SentStarters {
		p.starters[word] = true
	}
	for pair := range in.Collocations {
		a, b, ok := strings.Cut(pair, ",")
		if !ok {
			return nil, exitcode.Errorf(exitcode.Internal, "built-in Punkt parameters: %q is not a pair of words", pair)
		}
		p.collocations[[2]string{a, b}] = true
	}
	return p, nil
}

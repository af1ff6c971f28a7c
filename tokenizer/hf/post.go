package hf

import (
	"encoding/json"
)

// postProcessing has the fields of every type of post_processor.
type postProcessing struct {
	Type          string
	Processors    []json.RawMessage
	Single        []templatePiece
	SpecialTokens map[string]struct{ IDs []int32 } `json:"special_tokens"`
	Cls, Sep      []json.RawMessage
}

// postProcessor reads which ids go before and after a single text.
func (r *reader) postProcessor(raw json.RawMessage) (before, after []int32, err error) {
	if isNull(raw) {
		return nil, nil, nil
	}
	var p postProcessing
	if err := r.part("post_processor", raw, &p); err != nil {
		return nil, nil, err
	}
	switch p.Type {
	case "ByteLevel":
		return nil, nil, nil
	case "Sequence":
		return r.postProcessors(p.Processors)
	case "RobertaProcessing", "BertProcessing":
		if before, err = r.clsOrSep(p.Cls); err == nil {
			after, err = r.clsOrSep(p.Sep)
		}
		return before, after, err
	case "TemplateProcessing":
		return r.template(&p)
	}
	return nil, nil, r.unsupported("post_processor", p.Type)
}

// postProcessors puts what later ones add around what earlier ones do.
func (r *reader) postProcessors(list []json.RawMessage) (before, after []int32, err error) {
	if err := r.deeper(); err != nil {
		return nil, nil, err
	}
	defer r.back()
	for _, raw := range list {
		b, a, err := r.postProcessor(raw)
		if err != nil {
			return nil, nil, err
		}
		before, after = append(b, before...), append(after, a...)
	}
	return before, after, nil
}

// clsOrSep reads ["token", id].
func (r *reader) clsOrSep(pair []json.RawMessage) ([]int32, error) {
	var id int32
	if len(pair) != 2 || json.Unmarshal(pair[1], &id) != nil || id < 0 {
		return nil, r.bad("post_processor: cls and sep must be pairs of a token and its id")
	}
	return []int32{id}, nil
}

// template reads what stands before and after the one text.
func (r *reader) template(p *postProcessing) (before, after []int32, err error) {
	seen := false
	for _, piece := range p.Single {
		switch {
		case piece.Sequence != nil && (seen || piece.Sequence.ID != "A"):
			return nil, nil, r.bad("post_processor: the template for one text must contain exactly one text")
		case piece.Sequence != nil:
			seen = true
		case piece.SpecialToken == nil:
			return nil, nil, r.bad("post_processor: a piece is neither a Sequence nor a SpecialToken")
		default:
			s, ok := p.SpecialTokens[piece.SpecialToken.ID]
			if !ok {
				return nil, nil, r.bad("post_processor: the special token %.60q has no ids", piece.SpecialToken.ID)
			}
			if seen {
				after = append(after, s.IDs...)
			} else {
				before = append(before, s.IDs...)
			}
		}
	}
	if !seen {
		return nil, nil, r.bad("post_processor: the template has no item for the text")
	}
	return before, after, nil
}

type templatePiece struct {
	Sequence     *struct{ ID string }
	SpecialToken *struct{ ID string }
}

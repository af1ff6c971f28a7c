package serve

import (
	"net/http"

	"monotron/megatron/inference"
)

// megatronAsk is the request of Megatron-LM's text generation server (PUT /api).
type megatronAsk struct {
	Prompts       []string `json:"prompts"`
	Tokens        *int     `json:"tokens_to_generate"`
	LogProbs      bool     `json:"logprobs"`
	Temperature   *float64 `json:"temperature"`
	TopK          *int     `json:"top_k"`
	TopP          *float64 `json:"top_p"`
	AddBOS        bool     `json:"add_BOS"`
	StopToken     *int32   `json:"stop_token"`
	Seed          *int64   `json:"random_seed"`
	NoLog         bool     `json:"no_log"`
	BeamWidth     *int     `json:"beam_width"`
	StopOnDouble  bool     `json:"stop_on_double_eol"`
	StopOnEOL     bool     `json:"stop_on_eol"`
	PreventNewEOL bool     `json:"prevent_newline_after_colon"`
}

// megatron answers as Megatron-LM's server does: texts and segments with the prompts before
// what is new.
func (s *server) megatron(w http.ResponseWriter, r *http.Request, l *loaded) error {
	// Requests, all answered before anything is sent.
	var q megatronAsk
	if err := decode(r, &q); err != nil {
		return err
	}
	requests, err := q.requests(s, l)
	if err != nil {
		return err
	}
	streams, err := l.batcher.Submit(requests...)
	if err != nil {
		return err
	}
	r.Body.Close()
	all, err := s.wait(r.Context(), streams)
	if err != nil {
		return err
	}
	// Segments are pieces of prompt and answer; the first token of a prompt has no probability.
	texts, segments, logs := []string{}, [][]string{}, [][]float64{}
	for i, x := range all {
		var words []string
		var lps []float64
		for _, id := range requests[i].Prompt {
			text, _ := l.piece(id)
			words = append(words, text)
		}
		for at, t := range x.Prompt {
			if at > 0 {
				lps = append(lps, t.LogProb)
			}
		}
		for _, t := range x.Tokens {
			text, _ := l.piece(t.ID)
			words, lps = append(words, text), append(lps, t.LogProb)
		}
		texts, segments, logs = append(texts, q.Prompts[i]+textOf(x)), append(segments, words), append(logs, lps)
	}
	answer := map[string]any{"text": texts, "segments": segments}
	if q.LogProbs {
		answer["logprobs"] = logs
	}
	return reply(w, answer)
}

func (q *megatronAsk) requests(s *server, l *loaded) (list []*inference.Request, err error) {
	// Megatron's defaults and limits (text_generation_server.py).
	var all []error
	tokens := between(&all, "tokens_to_generate", q.Tokens, 0, 1<<20, 64)
	base := inference.Request{Tokenizer: l.Tok, LogProbs: -1, Ends: l.Ends, MaxNew: tokens}
	base.Temperature = between(&all, "temperature", q.Temperature, 0.001, 100, 1)
	base.TopK, base.TopP = between(&all, "top_k", q.TopK, 0, 1000, 0), between(&all, "top_p", q.TopP, 0, 1, 0)
	if base.TopK == 0 && base.TopP == 0 {
		base.Temperature = 0 // Megatron's greedy
	}
	if q.StopToken != nil {
		base.Ends = []int32{*q.StopToken}
	}
	if q.Seed != nil {
		base.Seed = uint64(*q.Seed)
	}
	for _, field := range []struct {
		name  string
		asked bool
	}{
		{"beam_width", q.BeamWidth != nil && *q.BeamWidth > 1}, {"add_BOS", q.AddBOS}, {"stop_on_double_eol", q.StopOnDouble},
		{"stop_on_eol", q.StopOnEOL}, {"prevent_newline_after_colon", q.PreventNewEOL},
	} {
		if field.asked {
			all = append(all, wrong(field.name, "this server does not support beam search; use monotron generate"))
		}
	}
	if len(q.Prompts) == 0 || len(q.Prompts) > mostChoices {
		all = append(all, wrong("prompts", "there are %d prompts; there must be 1 to %d", len(q.Prompts), mostChoices))
	}
	if len(all) > 0 {
		return nil, joined(all)
	}
	// A request for each prompt.
	for i, text := range q.Prompts {
		one := base
		if one.Prompt, err = l.encodeText("prompts", text, false); err != nil {
			return nil, err
		}
		if _, err = l.length("tokens_to_generate", &tokens, 0, len(one.Prompt)); err != nil {
			return nil, err
		}
		one.Number, one.PromptLogProbs = uint32(i), q.LogProbs
		if q.LogProbs {
			one.LogProbs = 0
		}
		list = append(list, &one)
	}
	return list, nil
}

package serve

import (
	"encoding/json"
	"slices"
)

// othersAsk are fields of vLLM, SGLang and llama.cpp that change an answer and that this server does not have. An
// answer that does without them would be another one than the client asked for.
type othersAsk struct {
	AllowedIDs  json.RawMessage `json:"allowed_token_ids"`
	BadWords    json.RawMessage `json:"bad_words"`
	Dry         json.RawMessage `json:"dry_multiplier"`
	EBNF        json.RawMessage `json:"ebnf"`
	Grammar     json.RawMessage `json:"grammar"`
	Choice      json.RawMessage `json:"guided_choice"`
	GuidedText  json.RawMessage `json:"guided_grammar"`
	GuidedJSON  json.RawMessage `json:"guided_json"`
	GuidedRegex json.RawMessage `json:"guided_regex"`
	IncludeStop json.RawMessage `json:"include_stop_str_in_output"`
	Schema      json.RawMessage `json:"json_schema"`
	MinTokens   json.RawMessage `json:"min_tokens"`
	Mirostat    json.RawMessage `json:"mirostat"`
	Predict     json.RawMessage `json:"n_predict"`
	PromptLogs  json.RawMessage `json:"prompt_logprobs"`
	Regex       json.RawMessage `json:"regex"`
	Repeat      json.RawMessage `json:"repeat_penalty"`
	Structured  json.RawMessage `json:"structured_outputs"`
	Truncate    json.RawMessage `json:"truncate_prompt_tokens"`
	Typical     json.RawMessage `json:"typical_p"`
	XTC         json.RawMessage `json:"xtc_probability"`
}

// refuse names the fields whose values would change an answer.
func (o *othersAsk) refuse(all *[]error) {
	const format, sampler = "use response_format", "not supported; use temperature, top_k, top_p or min_p"
	for _, f := range []struct {
		name    string
		value   json.RawMessage
		instead string
		neutral []string // values that change nothing
	}{
		{"truncate_prompt_tokens", o.Truncate, "not supported; send a shorter prompt", nil},
		// What the text may be.
		{"allowed_token_ids", o.AllowedIDs, "not supported; use logit_bias, which accepts ids", nil},
		{"bad_words", o.BadWords, "not supported; use a logit_bias of -100 to ban an id", []string{"[]"}},
		{"ebnf", o.EBNF, format, nil},
		{"grammar", o.Grammar, format, []string{`""`}},
		{"guided_choice", o.Choice, format, nil},
		{"guided_grammar", o.GuidedText, format, nil},
		{"guided_json", o.GuidedJSON, format, nil},
		{"guided_regex", o.GuidedRegex, format, nil},
		{"json_schema", o.Schema, format, []string{"{}"}},
		{"regex", o.Regex, format, nil},
		{"structured_outputs", o.Structured, format, nil},
		{"include_stop_str_in_output", o.IncludeStop, "not supported; the stop text is not part of an answer", []string{"false"}},
		{"min_tokens", o.MinTokens, "not supported; use ignore_eos to get texts of max_tokens tokens", []string{"0"}},
		{"n_predict", o.Predict, "use max_tokens", nil},
		{"prompt_logprobs", o.PromptLogs, "use echo with logprobs", nil},
		// Sampling.
		{"dry_multiplier", o.Dry, sampler, []string{"0", "0.0"}},
		{"mirostat", o.Mirostat, sampler, []string{"0"}},
		{"repeat_penalty", o.Repeat, "use repetition_penalty", []string{"1", "1.0"}},
		{"typical_p", o.Typical, sampler, []string{"1", "1.0"}},
		{"xtc_probability", o.XTC, sampler, []string{"0", "0.0"}},
	} {
		if given(f.value) && !slices.Contains(f.neutral, string(f.value)) {
			*all = append(*all, wrong(f.name, "%s", f.instead))
		}
	}
}

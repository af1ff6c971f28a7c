package serve

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"unicode/utf8"

	"monotron/megatron/inference"
	"monotron/megatron/inference/schema"
)

const (
	mostChoices = 128 // of a request: n and best_of
	mostStops   = 4
	mostStop    = 1024 // bytes of a stop text
	mostStopIDs = 1024
	mostBiases  = 1024 // tokens of logit_bias
)

// ask is what completions and chats have in common.
type ask struct {
	Model         string   `json:"model"`
	MaxTokens     *int     `json:"max_tokens"`
	Temperature   *float64 `json:"temperature"`
	TopP          *float64 `json:"top_p"`
	TopK          *int     `json:"top_k"`
	MinP          *float64 `json:"min_p"`
	N             *int     `json:"n"`
	Stream        bool     `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Stop          words              `json:"stop"`
	StopIDs       []int32            `json:"stop_token_ids"`
	IgnoreEOS     bool               `json:"ignore_eos"`
	Presence      *float64           `json:"presence_penalty"`
	Frequency     *float64           `json:"frequency_penalty"`
	Repetition    *float64           `json:"repetition_penalty"`
	NoRepeatNgram *int               `json:"no_repeat_ngram_size"`
	LogitBias     map[string]float64 `json:"logit_bias"`
	Seed          *int64             `json:"seed"`
	Format        *struct {
		Type   string `json:"type"`
		Schema *struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
		Object json.RawMessage `json:"schema"` // as llama.cpp takes it, with json_object
	} `json:"response_format"`
	BeamSearch bool  `json:"use_beam_search"`
	Special    *bool `json:"add_special_tokens"`
	Skip       *bool `json:"skip_special_tokens"`
	othersAsk
}

// between checks a number that need not be there.
func between[T int | float64](all *[]error, param string, x *T, least, most, otherwise T) T {
	if x == nil {
		return otherwise
	}
	if !(*x >= least && *x <= most) {
		*all = append(*all, wrong(param, "the value must be from %v to %v, not %v", least, most, *x))
	}
	return *x
}

// request is what each text of the ask receives; its prompt, length and log-probabilities
// are the caller's.
func (q *ask) request(s *server, l *loaded) (*inference.Request, error) {
	adapter, err := s.named(q.Model)
	if err != nil {
		return nil, err
	}
	// Sampling, with the limits of OpenAI's API and vLLM's names for what it has not.
	var all []error
	r := &inference.Request{Tokenizer: l.Tok, LogProbs: -1, Adapter: adapter, SkipSpecial: q.Skip == nil || *q.Skip}
	r.Temperature = between(&all, "temperature", q.Temperature, 0, 100, 1)
	r.TopP = between(&all, "top_p", q.TopP, 0, 1, 1)
	if q.TopP != nil && *q.TopP == 0 {
		r.TopP = math.SmallestNonzeroFloat64 // the likeliest alone
	}
	if r.TopK = between(&all, "top_k", q.TopK, -1, math.MaxInt32, 0); r.TopK < 0 {
		r.TopK = 0
	}
	r.MinP = between(&all, "min_p", q.MinP, 0, 1, 0)
	r.Presence, r.Frequency = between(&all, "presence_penalty", q.Presence, -2, 2, 0), between(&all, "frequency_penalty", q.Frequency, -2, 2, 0)
	if r.Repetition = between(&all, "repetition_penalty", q.Repetition, 0, 100, 1); r.Repetition == 0 {
		all = append(all, wrong("repetition_penalty", "the value must be above 0"))
	}
	r.NoRepeatNgram = between(&all, "no_repeat_ngram_size", q.NoRepeatNgram, 0, math.MaxInt32, 0)
	between(&all, "n", q.N, 1, mostChoices, 1)
	// What ends or guides a text.
	r.Bias, r.Stops = q.bias(&all, l), q.stops(&all, l)
	if n := len(q.StopIDs); n > mostStopIDs {
		all = append(all, wrong("stop_token_ids", "there are %d ids; at most %d are allowed", n, mostStopIDs))
	}
	if !q.IgnoreEOS {
		r.Ends = append(r.Ends, l.Ends...)
	}
	r.Ends = append(r.Ends, q.StopIDs...)
	if r.Seed = rand.Uint64(); q.Seed != nil {
		r.Seed = uint64(*q.Seed)
	}
	if r.Grammar = q.grammar(&all, l); r.Grammar != nil {
		r.Vocabulary, r.SkipSpecial = l.words(), false // a special token may spell a part
		if err := r.Grammar.Spelled(r.Vocabulary); err != nil {
			all = append(all, wrong("response_format", "%s", err))
		}
	}
	if q.BeamSearch {
		all = append(all, wrong("use_beam_search", "this server does not support beam search; use monotron generate"))
	}
	q.refuse(&all)
	// All problems in one answer.
	if len(all) > 0 {
		return nil, joined(all)
	}
	return r, nil
}

// joined is one problem of several: the first's field, every one's text.
func joined(all []error) error {
	var first *problem
	errors.As(all[0], &first)
	p := *first
	for _, err := range all[1:] {
		p.Message += "; " + err.Error()
	}
	return &p
}

// grammar is response_format's; nil: any text.
func (q *ask) grammar(all *[]error, l *loaded) *schema.Grammar {
	if q.Format == nil || q.Format.Type == "" || q.Format.Type == "text" {
		return nil
	}
	if l.Tok == nil {
		*all = append(*all, wrong("response_format", "this model has no tokenizer"))
		return nil
	}
	text := q.Format.Object
	switch q.Format.Type {
	case "json_object":
		if !given(text) {
			return schema.Any()
		}
	case "json_schema":
		if q.Format.Schema == nil || len(q.Format.Schema.Schema) == 0 {
			*all = append(*all, wrong("response_format", "json_schema.schema is missing"))
			return nil
		}
		text = q.Format.Schema.Schema
	default:
		*all = append(*all, wrong("response_format", "the type %.40q is not supported; choose from text, json_object and json_schema", q.Format.Type))
		return nil
	}
	g, err := schema.Compile(text)
	if err != nil {
		*all = append(*all, wrong("response_format", "%s", err))
	}
	return g
}

// bias is logit_bias, made once for all texts of the request.
func (q *ask) bias(all *[]error, l *loaded) inference.Bias {
	if n := len(q.LogitBias); n > mostBiases {
		*all = append(*all, wrong("logit_bias", "there are %d tokens; at most %d are allowed", n, mostBiases))
		return nil
	}
	bias := map[int32]float64{}
	for key, b := range q.LogitBias {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil || id < 0 || int(id) >= l.Vocab {
			*all = append(*all, wrong("logit_bias", "%.40q is not a token id; ids are from 0 to %d", key, l.Vocab-1))
			continue
		}
		if !(b >= -100 && b <= 100) {
			*all = append(*all, wrong("logit_bias", "the value of id %d must be from -100 to 100, not %g", id, b))
			continue
		}
		if bias[int32(id)] = b; b == -100 {
			bias[int32(id)] = math.Inf(-1) // a ban
		}
	}
	return inference.NewBias(bias)
}

func (q *ask) stops(all *[]error, l *loaded) []string {
	if len(q.Stop) > mostStops {
		*all = append(*all, wrong("stop", "there are %d strings; at most %d are allowed", len(q.Stop), mostStops))
	}
	if len(q.Stop) > 0 && l.Tok == nil {
		*all = append(*all, wrong("stop", "this model has no tokenizer; use stop_token_ids, which accepts ids"))
	}
	for _, text := range q.Stop {
		if text == "" || len(text) > mostStop {
			*all = append(*all, wrong("stop", "a string has %d bytes; it must have 1 to %d", len(text), mostStop))
		}
	}
	return q.Stop
}

// length is how many tokens may follow a prompt of so many: what was asked for, or what the
// model leaves.
func (l *loaded) length(param string, asked *int, otherwise, prompt int) (int, error) {
	n := otherwise
	if l.Context > 0 {
		n = min(n, max(0, l.Context-prompt))
	}
	if asked != nil {
		n = *asked
	}
	if n < 0 {
		return 0, wrong(param, "the value must be at least 0, not %d", n)
	}
	if l.Context > 0 && (prompt > l.Context || n > l.Context-prompt) {
		return 0, &problem{Status: 400, Message: l.tooLong(prompt, n), Param: param, Code: "context_length_exceeded"}
	}
	if asked == nil && n == 0 && otherwise > 0 {
		return 0, &problem{Status: 400, Message: l.tooLong(prompt, 1), Param: "prompt", Code: "context_length_exceeded"}
	}
	return n, nil
}

func (l *loaded) tooLong(prompt, n int) string {
	return "the prompt has " + strconv.Itoa(prompt) + " tokens, which together with " + strconv.Itoa(n) + " tokens to generate exceed the model's " + strconv.Itoa(l.Context) + " positions"
}

func isUTF8(b []byte) bool { return utf8.Valid(b) }

package serve

import (
	"net/http"
	"slices"
	"unicode/utf8"

	"monotron/megatron/inference"
	"monotron/tokenizer"
)

// mostLogProbs is how many of the likeliest tokens a client may see.
const mostLogProbs = 20

type completionAsk struct {
	ask
	Prompt   prompts `json:"prompt"`
	LogProbs *int    `json:"logprobs"`
	Echo     bool    `json:"echo"`
	BestOf   *int    `json:"best_of"`
	Suffix   *string `json:"suffix"`
}

// completions continues texts.
func (s *server) completions(w http.ResponseWriter, r *http.Request, l *loaded) error {
	var q completionAsk
	if err := decode(r, &q); err != nil {
		return err
	}
	c := &completion{server: s, l: l, q: &q, id: newID("cmpl-")}
	return s.answer(w, r, l, &q.ask, c)
}

// completion is one request for completions on its way.
type completion struct {
	*server
	l       *loaded
	q       *completionAsk
	id      string
	choices int // kept of each prompt
	of      int // tried
	prompts [][]int32
	parts   []*pieces // of each text
}

func (c *completion) requests() (list []*inference.Request, err error) {
	base, err := c.q.request(c.server, c.l)
	if err != nil {
		return nil, err
	}
	var all []error
	c.choices = between(&all, "n", c.q.N, 1, mostChoices, 1)
	c.of = between(&all, "best_of", c.q.BestOf, c.choices, mostChoices, c.choices)
	if c.q.LogProbs != nil {
		base.LogProbs = between(&all, "logprobs", c.q.LogProbs, 0, mostLogProbs, 0)
	}
	if c.q.Suffix != nil && *c.q.Suffix != "" {
		all = append(all, wrong("suffix", "not supported: this server only continues a text at its end"))
	}
	if c.of > c.choices && c.q.Stream {
		all = append(all, wrong("best_of", "best_of above n cannot be streamed, because the best texts are known only at the end"))
	}
	if len(all) > 0 {
		return nil, joined(all)
	}
	if n := c.q.Prompt.count() * c.of; n > c.queue { // before any text is encoded
		return nil, wrong("prompt", "the request asks for %d texts; at most %d are allowed (--max-queue)", n, c.queue)
	}
	if c.prompts, err = c.q.Prompt.each(c.l, c.q.Special != nil && !*c.q.Special); err != nil {
		return nil, err
	}
	for at, ids := range c.prompts {
		length, err := c.l.length("max_tokens", c.q.MaxTokens, 16, len(ids))
		if err != nil {
			return nil, err
		}
		for i := range c.of {
			one := *base
			one.Prompt, one.MaxNew, one.Number = ids, length, uint32(i)
			one.PromptLogProbs = c.q.Echo && c.q.LogProbs != nil
			if one.LogProbs < 0 && c.of > c.choices {
				one.LogProbs = 0 // the best is the likeliest
			}
			list = append(list, &one)
			c.parts = append(c.parts, c.l.pieces(ids, c.q.Prompt.text(at)))
		}
	}
	return list, nil
}

func (c *completion) head(weights string) map[string]any {
	return map[string]any{"id": c.id, "object": "text_completion", "created": c.created, "model": c.modelName(c.q.Model), "system_fingerprint": weights}
}

func (c *completion) promptTokens() (n int) {
	for _, ids := range c.prompts {
		n += len(ids)
	}
	return n
}

// opening is what comes before any token of a streamed text.
func (c *completion) opening(i int) []map[string]any {
	return nil
}

// delta is a part of text i.
func (c *completion) delta(i int, r inference.Result) map[string]any {
	p := c.parts[i]
	choice := map[string]any{"index": i, "finish_reason": reasonOf(r.Ended)}
	var logs *completionLogs
	if c.q.LogProbs != nil {
		logs = &completionLogs{Tokens: []string{}, LogProbs: []*float64{}, Top: []map[string]float64{}, Offsets: []int{}}
	}
	text := ""
	if c.q.Echo && !p.begun {
		text = p.prompt
		if logs != nil {
			c.promptLogs(i, logs, r.Prompt)
		}
	}
	p.begun = true
	for _, t := range r.Tokens {
		text += t.Text
		if logs != nil {
			p.skip = (c.q.Skip == nil || *c.q.Skip) && tokenizer.Special(c.l.Tok, t.ID)
			p.add(c.l, logs, t, true, *c.q.LogProbs)
		}
	}
	choice["text"], choice["logprobs"] = text+r.Rest, logs
	return choice
}

// promptLogs are the tokens of the prompt; of a streamed text they are complete with its first.
func (c *completion) promptLogs(i int, logs *completionLogs, tokens []inference.Token) {
	before := c.l.pieces(nil, "")
	for at, t := range tokens {
		before.skip = at < c.parts[i].around
		before.add(c.l, logs, t, at > 0, *c.q.LogProbs)
	}
}

// complete is all of text i.
func (c *completion) complete(i int, r inference.Result) map[string]any {
	return c.delta(i, r)
}

// keep chooses, of the texts tried, the n likeliest for each prompt.
func (c *completion) keep(all []inference.Result) (indices []int) {
	for p := range c.prompts {
		tried := make([]int, c.of)
		for i := range tried {
			tried[i] = p*c.of + i
		}
		if c.of > c.choices {
			slices.SortStableFunc(tried, func(a, b int) int { return compareDown(mean(all[a]), mean(all[b])) })
		}
		indices = append(indices, tried[:c.choices]...)
	}
	return indices
}

func (c *completion) forget() { c.q.Prompt = prompts{} }

func compareDown(a, b float64) int {
	switch {
	case a > b:
		return -1
	case a < b:
		return 1
	}
	return 0
}

// mean is a text's log-probability a token.
func mean(r inference.Result) float64 {
	sum := 0.0
	for _, t := range r.Tokens {
		sum += t.LogProb
	}
	return sum / float64(max(1, len(r.Tokens)))
}

// completionLogs are log-probabilities as completions show them.
type completionLogs struct {
	Tokens   []string             `json:"tokens"`
	LogProbs []*float64           `json:"token_logprobs"`
	Top      []map[string]float64 `json:"top_logprobs"`
	Offsets  []int                `json:"text_offset"` // characters from the start of the prompt
}

// pieces counts the characters of a text as its tokens come.
type pieces struct {
	prompt string
	around int // tokens that the tokenizer put before the prompt's text
	begun  bool
	chars  int
	text   *tokenizer.Stream
	skip   bool // the next token has no text
}

// pieces is a text that begins with a prompt; text is what was sent, "" where that were ids.
func (l *loaded) pieces(prompt []int32, text string) *pieces {
	p := &pieces{}
	if l.Tok == nil {
		return p
	}
	p.prompt, p.text = l.Tok.Decode(prompt), tokenizer.NewStream(l.Tok)
	for text != "" && len(p.prompt) > len(text) && p.around < len(prompt) && tokenizer.Special(l.Tok, prompt[p.around]) {
		p.around++
		p.prompt = l.Tok.Decode(prompt[p.around:])
	}
	p.chars = utf8.RuneCountInString(p.prompt)
	return p
}

// add is the next token; known: it has a log-probability.
func (p *pieces) add(l *loaded, logs *completionLogs, t inference.Token, known bool, top int) {
	text, _ := l.piece(t.ID)
	logs.Tokens, logs.Offsets = append(logs.Tokens, text), append(logs.Offsets, p.chars)
	if p.text != nil && !p.skip {
		p.chars += utf8.RuneCountInString(p.text.Push(t.ID))
	}
	if !known {
		logs.LogProbs, logs.Top = append(logs.LogProbs, nil), append(logs.Top, nil)
		return
	}
	lp := t.LogProb
	logs.LogProbs = append(logs.LogProbs, &lp)
	best := map[string]float64{}
	for _, x := range t.Top[:min(top, len(t.Top))] {
		name, _ := l.piece(x.ID)
		best[name] = x.LogProb
	}
	if len(best) > 0 {
		best[text] = t.LogProb
	}
	logs.Top = append(logs.Top, best)
}

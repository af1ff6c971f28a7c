package serve

import (
	"encoding/json"
	"net/http"

	"monotron/megatron/inference"
	"monotron/tokenizer/chat"
)

// message is a turn as its client wrote it, keys in their order.
type message = json.RawMessage

type chatAsk struct {
	ask
	Messages      json.RawMessage `json:"messages"`
	MaxCompletion *int            `json:"max_completion_tokens"`
	LogProbs      bool            `json:"logprobs"`
	Top           *int            `json:"top_logprobs"`
	toolsAsk
	templateAsk
}

// templateAsk are the fields that say how the chat template is rendered.
type templateAsk struct {
	AddGeneration *bool           `json:"add_generation_prompt"`
	ContinueFinal bool            `json:"continue_final_message"`
	Variables     json.RawMessage `json:"chat_template_kwargs"`
	Tools         json.RawMessage `json:"tools"`
	Documents     json.RawMessage `json:"documents"`
	Effort        *string         `json:"reasoning_effort"`
	Template      json.RawMessage `json:"chat_template"`
}

func (a *templateAsk) options() (chat.Options, error) {
	o := chat.Options{AddGenerationPrompt: a.AddGeneration == nil || *a.AddGeneration, ContinueFinalMessage: a.ContinueFinal, Variables: a.Variables, Documents: a.Documents}
	if given(a.Tools) && string(a.Tools) != "[]" {
		o.Tools = a.Tools
	}
	if o.AddGenerationPrompt && o.ContinueFinalMessage {
		return o, wrong("continue_final_message", "this field needs add_generation_prompt: false")
	}
	if given(a.Template) {
		return o, wrong("chat_template", "a request cannot give a template; the server uses the model's, or that of --chat-template")
	}
	var err error
	o.Variables, err = a.variables()
	return o, err
}

// variables are chat_template_kwargs, and what reasoning_effort means to templates where they do not say it.
func (a *templateAsk) variables() (json.RawMessage, error) {
	if a.Effort == nil {
		return a.Variables, nil
	}
	more := map[string]any{"reasoning_effort": *a.Effort}
	if *a.Effort == "none" { // the switches of templates that know no efforts
		more = map[string]any{"enable_thinking": false, "thinking": false}
	}
	var own map[string]json.RawMessage
	if given(a.Variables) && json.Unmarshal(a.Variables, &own) != nil {
		return nil, wrong("chat_template_kwargs", "the value must be an object")
	}
	for name, value := range own {
		more[name] = value
	}
	return json.Marshal(more)
}

// chat answers a conversation.
func (s *server) chat(w http.ResponseWriter, r *http.Request, l *loaded) error {
	var q chatAsk
	if err := decode(r, &q); err != nil {
		return err
	}
	c := &conversation{server: s, l: l, q: &q, id: newID("chatcmpl-")}
	return s.answer(w, r, l, &q.ask, c)
}

// conversation is one request for an answer on its way.
type conversation struct {
	*server
	l      *loaded
	q      *chatAsk
	id     string
	prompt int // tokens
	calls  *calls
}

func (c *conversation) requests() (list []*inference.Request, err error) {
	base, err := c.q.request(c.server, c.l)
	if err != nil {
		return nil, err
	}
	// Tools, log-probabilities and messages.
	var all []error
	if c.calls = c.q.calls(&all, c.l, base); c.calls != nil {
		base.SkipSpecial = false // calls may begin with one
	}
	if c.q.Top != nil && !c.q.LogProbs {
		all = append(all, wrong("top_logprobs", "this field needs logprobs: true"))
	}
	if c.q.LogProbs {
		base.LogProbs = between(&all, "top_logprobs", c.q.Top, 0, mostLogProbs, 0)
	}
	messages, err := c.l.turns(c.q.Messages)
	if err != nil {
		all = append(all, err)
	}
	if len(all) > 0 {
		return nil, joined(all)
	}
	// The prompt, rendered by the chat template; the newer name of the limit wins.
	_, ids, err := c.l.render(messages, &c.q.templateAsk, c.q.Special)
	if err != nil {
		return nil, err
	}
	asked, param := c.q.MaxCompletion, "max_completion_tokens"
	if asked == nil {
		asked, param = c.q.MaxTokens, "max_tokens"
	}
	c.prompt = len(ids)
	length, err := c.l.length(param, asked, 1<<20, len(ids))
	if err != nil {
		return nil, err
	}
	if asked == nil && c.l.Context == 0 {
		length = 1024 // a model without a limit needs one here
	}
	// n texts with the same prompt and numbers of their own, by which their draws differ.
	for i := range between(&all, "n", c.q.N, 1, mostChoices, 1) {
		one := *base
		one.Prompt, one.MaxNew, one.Number = ids, length, uint32(i)
		list = append(list, &one)
	}
	return list, nil
}

func (c *conversation) forget() {
	c.q.Messages, c.q.Variables, c.q.Tools, c.q.Documents, c.q.othersAsk = nil, nil, nil, nil, othersAsk{}
}

func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// render is the text of a conversation, and its ids; special asks for the tokens that the tokenizer puts around.
func (l *loaded) render(messages []message, a *templateAsk, special *bool) (string, []int32, error) {
	if l.NoChat != nil {
		return "", nil, &problem{Status: http.StatusBadRequest, Message: l.NoChat.Error(), Param: "messages", Code: "no_chat_template"}
	}
	o, err := a.options()
	if err != nil {
		return "", nil, err
	}
	text, err := renderTurns(l.Template, messages, o)
	if err != nil {
		return "", nil, wrong("messages", "the chat template: %s", err)
	}
	ids, err := l.encodeText("messages", text, special == nil || !*special)
	return text, ids, err
}

func (c *conversation) head(weights string) map[string]any {
	object := "chat.completion"
	if c.q.Stream {
		object = "chat.completion.chunk"
	}
	return map[string]any{"id": c.id, "object": object, "created": c.created, "model": c.modelName(c.q.Model), "system_fingerprint": weights}
}

func (c *conversation) promptTokens() int { return c.prompt }

func (c *conversation) opening(i int) []map[string]any {
	return []map[string]any{{"index": i, "delta": map[string]any{"role": "assistant", "content": ""}, "logprobs": nil, "finish_reason": nil}}
}

// logs are log-probabilities as chats show them.
func (c *conversation) logs(tokens []inference.Token) any {
	if !c.q.LogProbs {
		return nil
	}
	content := []map[string]any{}
	for _, t := range tokens {
		one := c.l.logOf(t.Choice)
		top := []map[string]any{}
		for _, x := range t.Top {
			top = append(top, c.l.logOf(x))
		}
		one["top_logprobs"] = top
		content = append(content, one)
	}
	return map[string]any{"content": content, "refusal": nil}
}

func (l *loaded) logOf(c inference.Choice) map[string]any {
	text, raw := l.piece(c.ID)
	bytes := make([]int, len(raw))
	for i, b := range raw {
		bytes[i] = int(b)
	}
	return map[string]any{"token": text, "logprob": c.LogProb, "bytes": bytes}
}

func textOf(r inference.Result) string {
	text := ""
	for _, t := range r.Tokens {
		text += t.Text
	}
	return text + r.Rest
}

func (c *conversation) delta(i int, r inference.Result) map[string]any {
	delta, reason := map[string]any{}, reasonOf(r.Ended)
	text, made := c.calls.next(i, textOf(r), r.Ended != "")
	if text != "" {
		delta["content"] = text
	}
	if len(made) > 0 {
		delta["tool_calls"], reason = made, reasonOfCalls(reason)
	}
	return map[string]any{"index": i, "delta": delta, "logprobs": c.logs(r.Tokens), "finish_reason": reason}
}

func (c *conversation) complete(i int, r inference.Result) map[string]any {
	reason := reasonOf(r.Ended)
	text, made := c.calls.next(i, textOf(r), true)
	message := map[string]any{"role": "assistant", "content": text, "refusal": nil}
	if len(made) > 0 {
		message["tool_calls"], reason = made, reasonOfCalls(reason)
		if text == "" {
			message["content"] = nil
		}
	}
	return map[string]any{"index": i, "message": message, "logprobs": c.logs(r.Tokens), "finish_reason": reason}
}

func (c *conversation) keep(all []inference.Result) []int {
	indices := make([]int, len(all))
	for i := range indices {
		indices[i] = i
	}
	return indices
}

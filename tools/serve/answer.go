package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"monotron/megatron/inference"
)

// shape is how an answer's texts are shown: as completions or as chats.
type shape interface {
	head(weights string) map[string]any // weights: those that answer
	promptTokens() int
	opening(i int) []map[string]any                      // choices before any token of a streamed text
	delta(i int, r inference.Result) map[string]any      // a choice with what is new
	complete(i int, all inference.Result) map[string]any // a choice with all
	keep(all []inference.Result) []int                   // which texts are shown, in order
}

func newID(prefix string) string {
	var b [12]byte
	rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}

// reasonOf is a text's end as clients know it; nil: it continues.
func reasonOf(r inference.Reason) any {
	switch r {
	case "":
		return nil
	case inference.EndedByStop, inference.EndedByLength:
		return string(r)
	}
	return "stop"
}

// asked is a request that is read: the texts that it wants continued, and how to answer.
type asked interface {
	shape
	requests() ([]*inference.Request, error)
	forget() // what the request was made of: an answer may take long
}

// answer carries out what was asked, at once or as it comes.
func (s *server) answer(w http.ResponseWriter, r *http.Request, l *loaded, q *ask, a asked) error {
	requests, err := a.requests()
	if err != nil {
		return err
	}
	streams, err := l.batcher.Submit(requests...)
	if err != nil {
		return err
	}
	q.LogitBias = nil
	a.forget()
	r.Body.Close()
	if q.Stream {
		return s.stream(w, r, streams, a, q.StreamOptions != nil && q.StreamOptions.IncludeUsage)
	}
	return s.complete(w, r, streams, a)
}

// usage counts the tokens of an answer.
func usage(prompt, cached, generated int) map[string]any {
	return map[string]any{"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated, "prompt_tokens_details": map[string]any{"cached_tokens": cached}}
}

// complete answers when all texts have ended.
func (s *server) complete(w http.ResponseWriter, r *http.Request, streams []*inference.Stream, f shape) error {
	all, err := s.wait(r.Context(), streams)
	if err != nil {
		return err
	}
	generated, cached, choices := 0, 0, []map[string]any{}
	for _, x := range all {
		generated, cached = generated+x.Generated, max(cached, x.Cached)
	}
	for at, i := range f.keep(all) {
		choice := f.complete(i, all[i])
		choice["index"] = at
		choices = append(choices, choice)
	}
	answer := f.head(streams[0].Weights())
	answer["choices"], answer["usage"] = choices, usage(f.promptTokens(), cached, generated)
	return reply(w, answer)
}

// wait gathers all that the streams give. Where one fails the others are cancelled.
func (s *server) wait(ctx context.Context, streams []*inference.Stream) ([]inference.Result, error) {
	all := make([]inference.Result, len(streams))
	for i, stream := range streams {
		for all[i].Ended == "" {
			part, err := stream.Next(ctx)
			if err != nil {
				for _, other := range streams {
					other.Cancel()
				}
				return nil, err
			}
			part.Prompt, part.Tokens, part.Rest = append(all[i].Prompt, part.Prompt...), append(all[i].Tokens, part.Tokens...), all[i].Rest+part.Rest
			all[i] = part
		}
		s.metrics.ended(all[i])
	}
	return all, nil
}

// part is what one of several texts has new.
type part struct {
	index  int
	result inference.Result
	err    error
}

// stream answers with server-sent events as tokens come. A reader who is too slow, or has
// left, ends the request.
func (s *server) stream(w http.ResponseWriter, r *http.Request, streams []*inference.Stream, f shape, count bool) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	// Whatever ends the answer ends its texts.
	defer func() {
		for _, one := range streams {
			one.Cancel()
		}
	}()
	e := &events{w: w, control: http.NewResponseController(w), weights: streams[0].Weights()}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	generated, cached := 0, 0
	// What opens each choice.
	for i := range streams {
		for _, choice := range f.opening(i) {
			e.choice(f, choice, count)
		}
	}
	// Parts of all choices as they come.
	for p := range s.parts(ctx, streams) {
		if p.err != nil {
			e.send(problemOf(p.err).body())
			return nil
		}
		if p.result.Ended != "" {
			generated, cached = generated+p.result.Generated, max(cached, p.result.Cached)
		}
		for _, one := range tokenwise(p.result) {
			if e.choice(f, f.delta(p.index, one), count); e.err != nil {
				return nil
			}
		}
	}
	// The last event counts tokens.
	if count {
		answer := f.head(e.weights)
		answer["choices"], answer["usage"] = []any{}, usage(f.promptTokens(), cached, generated)
		e.send(answer)
	}
	e.raw([]byte("[DONE]"))
	return nil
}

// tokenwise cuts a result so that each part has one token at most; the last has the end.
func tokenwise(r inference.Result) (list []inference.Result) {
	for len(r.Tokens) > 1 {
		list = append(list, inference.Result{Prompt: r.Prompt, Tokens: r.Tokens[:1]})
		r.Prompt, r.Tokens = nil, r.Tokens[1:]
	}
	return append(list, r)
}

// parts gives what the streams give, as it comes, until all have ended.
func (s *server) parts(ctx context.Context, streams []*inference.Stream) <-chan part {
	out := make(chan part)
	var all sync.WaitGroup
	for i, stream := range streams {
		all.Go(func() {
			var total inference.Result
			for {
				r, err := stream.Next(ctx)
				select {
				case out <- part{i, r, err}:
				case <-ctx.Done():
					return
				}
				total.Tokens, total.Ended, total.Times, total.Generated = append(total.Tokens, r.Tokens...), r.Ended, r.Times, r.Generated
				if err != nil || r.Ended != "" {
					s.metrics.ended(total)
					return
				}
			}
		})
	}
	go func() {
		all.Wait()
		close(out)
	}()
	return out
}

// events writes server-sent events.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
	weights string
	err     error
}

func (e *events) choice(f shape, choice map[string]any, count bool) {
	answer := f.head(e.weights)
	answer["choices"] = []any{choice}
	if count {
		answer["usage"] = nil
	}
	e.send(answer)
}

func (e *events) send(v any) {
	var b bytes.Buffer
	j := json.NewEncoder(&b)
	j.SetEscapeHTML(false)
	if e.err = j.Encode(v); e.err == nil {
		e.raw(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	}
}

func (e *events) raw(data []byte) {
	if e.err != nil {
		return
	}
	e.control.SetWriteDeadline(time.Now().Add(patience))
	if _, e.err = e.w.Write(append(append([]byte("data: "), data...), "\n\n"...)); e.err == nil {
		e.err = e.control.Flush()
	}
}

package serving

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// client asks a server.
type client struct {
	options
	http *http.Client
}

// answer is what came of one request.
type answer struct {
	failed string // why it was not answered, in few words; "": it was
	first  time.Duration
	gaps   []time.Duration // between two parts with text
	full   time.Duration
	tokens int // as the server counts them; else parts with text
}

// perToken is the time of a token after the first, on average.
func (a *answer) perToken() time.Duration {
	if a.tokens < 2 {
		return 0
	}
	return (a.full - a.first) / time.Duration(a.tokens-1)
}

// chunk is an event of a stream.
type chunk struct {
	Choices []struct {
		Text  string
		Delta struct{ Content string }
	}
	Usage *struct {
		Completion int `json:"completion_tokens"`
	}
	Error *struct{ Message string }
}

func (k *client) body(prompt string) (path string, body map[string]any) {
	body = map[string]any{"model": k.model, "max_tokens": k.tokens, "temperature": 0, "stream": true, "stream_options": map[string]any{"include_usage": true}}
	if k.ignoreEOS {
		body["ignore_eos"] = true
	}
	if k.chat {
		body["messages"] = []any{map[string]any{"role": "user", "content": prompt}}
		return "/v1/chat/completions", body
	}
	body["prompt"] = prompt
	return "/v1/completions", body
}

// ask sends one request and reads its stream to the end.
func (k *client) ask(ctx context.Context, prompt string) (a answer) {
	ctx, done := context.WithTimeout(ctx, k.timeout)
	defer done()
	path, body := k.body(prompt)
	raw, err := json.Marshal(body)
	if err != nil {
		return answer{failed: err.Error()}
	}
	began := time.Now()
	reply, err := k.send(ctx, http.MethodPost, path, raw)
	if err != nil {
		return answer{failed: worded(err)}
	}
	defer reply.Body.Close()
	if err := a.read(reply.Body, began); err != nil {
		a.failed = worded(err)
	}
	return a
}

// read takes a stream of server-sent events until [DONE].
func (a *answer) read(r io.Reader, began time.Time) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	var last time.Duration
	parts := 0
	// An event is a line of JSON; tokens are counted by the usage it gives, or by events with text.
	for lines.Scan() {
		data, event := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if data = bytes.TrimSpace(data); !event {
			continue
		}
		now := time.Since(began)
		if string(data) == "[DONE]" {
			a.full, a.tokens = now, max(a.tokens, parts)
			return nil
		}
		var c chunk
		if err := json.Unmarshal(data, &c); err != nil {
			return errors.New("the server sent an event that is not JSON")
		}
		if c.Error != nil {
			return errors.New("the server sent an error in the stream")
		}
		if c.Usage != nil {
			a.tokens = c.Usage.Completion
		}
		// Time to the first text, and between texts.
		for _, x := range c.Choices {
			if x.Text+x.Delta.Content == "" {
				continue
			}
			if parts++; parts == 1 {
				a.first = now
			} else {
				a.gaps = append(a.gaps, now-last)
			}
			last = now
		}
	}
	// Without [DONE] the answer is incomplete.
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("the stream ended early")
}

func (k *client) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, k.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if k.key != "" {
		r.Header.Set("Authorization", "Bearer "+k.key)
	}
	reply, err := k.http.Do(r)
	if err != nil || reply.StatusCode == http.StatusOK {
		return reply, err
	}
	defer reply.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(reply.Body, 1<<16)) // for a person; what there is of it
	return nil, &refused{reply.StatusCode, string(text)}
}

func (k *client) get(ctx context.Context, path string, v any) error {
	reply, err := k.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	return json.NewDecoder(reply.Body).Decode(v)
}

// refused is an answer that is none.
type refused struct {
	status int
	text   string
}

func (r *refused) Error() string {
	return fmt.Sprintf("status %d: %.200s", r.status, strings.TrimSpace(r.text))
}

// worded is an error in few words, alike for alike ones, so that they can be counted.
func worded(err error) string {
	var r *refused
	switch {
	case errors.As(err, &r):
		return fmt.Sprintf("status %d", r.status)
	case errors.Is(err, context.DeadlineExceeded):
		return "not complete within --request-timeout"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "the connection ended early"
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}

package tracker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"monotron/internal/exitcode"
)

// longestAnswer is the most bytes of an answer that are read.
const longestAnswer = 8 << 20

// rest calls an HTTP API whose requests and answers are JSON.
type rest struct {
	base   string // URL without its last slash
	client *http.Client
	header http.Header
}

// refusal is an answer that is not 200.
type refusal struct {
	status int
	Code   string `json:"error_code"`
	Text   string `json:"message"`
}

func (r *refusal) Error() string {
	if r.Text == "" {
		return fmt.Sprintf("HTTP status %d", r.status)
	}
	return fmt.Sprintf("HTTP status %d: %.300q", r.status, r.Text)
}

// final reports whether a repetition of the request cannot help.
func final(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.status >= 400 && r.status < 500 && r.status != http.StatusTooManyRequests && r.status != http.StatusRequestTimeout
}

// base checks a URL of the option of that name.
func base(option, text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", exitcode.Errorf(exitcode.Usage, "%s %q must be a URL, as in http://127.0.0.1:5000", option, text)
	}
	if u.User != nil {
		return "", exitcode.Errorf(exitcode.Usage, "%s must not contain a password, which the log of the run would show; set it in the environment (docs/trackers.md)", option)
	}
	return strings.TrimSuffix(u.String(), "/"), nil
}

// call sends ask, which may be nil, and reads the answer into answer, which may be nil.
func (r *rest) call(ctx context.Context, method, path string, ask, answer any) error {
	var body io.Reader
	if ask != nil {
		text, err := json.Marshal(ask)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, r.base+path, body)
	if err != nil {
		return err
	}
	request.Header = r.header.Clone()
	request.Header.Set("Content-Type", "application/json")
	reply, err := r.client.Do(request)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(io.LimitReader(reply.Body, longestAnswer))
	if err != nil {
		return err
	}
	if reply.StatusCode != http.StatusOK {
		refused := &refusal{status: reply.StatusCode}
		_ = json.Unmarshal(text, refused) // an answer of another kind has its status alone
		return refused
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

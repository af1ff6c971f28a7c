package serve

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// access is a line of --access-log: one JSON object a request, when it has been answered.
type access struct {
	Time    time.Time `json:"time"` // when it arrived
	Remote  string    `json:"remote"`
	Method  string    `json:"method"`
	Path    string    `json:"path"`
	Status  int       `json:"status"`
	Bytes   int64     `json:"bytes"` // of the answer
	Seconds float64   `json:"seconds"`
	Agent   string    `json:"user_agent,omitempty"`
}

// accessLog writes a line for each request. Neither keys nor what was asked and answered are in it.
type accessLog struct {
	mu   sync.Mutex
	to   io.Writer
	warn func(format string, args ...any)
	lost bool // a line could not be written
}

// counted is an answer whose status and bytes are counted.
type counted struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (c *counted) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *counted) Write(p []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	n, err := c.ResponseWriter.Write(p)
	c.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController flush the answer, and set its deadlines.
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// wrap is next with a line a request; without a log it is next.
func (l *accessLog) wrap(next http.Handler) http.Handler {
	if l == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began, c := time.Now(), &counted{ResponseWriter: w}
		defer func() { l.add(began, r, c) }()
		next.ServeHTTP(c, r)
	})
}

func (l *accessLog) add(began time.Time, r *http.Request, c *counted) {
	remote, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		remote = r.RemoteAddr
	}
	if c.status == 0 {
		c.status = http.StatusOK
	}
	line, err := json.Marshal(access{began.UTC(), remote, r.Method, r.URL.Path, c.status, c.bytes, time.Since(began).Seconds(), r.UserAgent()})
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		_, err = l.to.Write(append(line, '\n'))
	}
	if err != nil && !l.lost {
		l.lost = true
		l.warn("--access-log: %v; requests are answered without it\n", err)
	}
}

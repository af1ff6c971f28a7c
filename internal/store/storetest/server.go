// Package storetest is an S3 server in the process of a test, with faults.
package storetest

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// Bucket is the one bucket of a server.
const Bucket = "tests"

// Kind is what goes wrong with one request.
type Kind int

const (
	None        Kind = iota
	Refused          // the connection ends before anything is done
	Cut              // the connection ends inside the request's body, which is not done
	Lost             // the request is done, its answer is lost
	Error500         // nothing is done
	SlowDown         // 503, nothing is done
	Denied           // 403, nothing is done
	WrongETag        // done; the answer names another ETag
	Truncated        // done; the answer's body ends early, though complete by its header
	CutAnswer        // done; the connection ends inside the answer's body
	ErrorInBody      // done; the answer is 200 with an error in its body, as Amazon's CompleteMultipartUpload
	Skewed           // 403 because of the caller's clock, nothing is done
	Late             // done when the caller has given up, or after lateness; its answer is lost
	Kinds
)

// Server answers as S3 does.
type Server struct {
	URL string // of the server

	mu    sync.Mutex
	fault func(r *http.Request) Kind
	real  http.Handler
}

// New starts a server with an empty Bucket and has the environment name it.
func New(t testing.TB) *Server {
	backend := s3mem.New()
	if err := backend.CreateBucket(Bucket); err != nil {
		t.Fatal(err)
	}
	s := &Server{real: gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()}
	server := httptest.NewUnstartedServer(s)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	s.URL = server.URL
	for name, value := range map[string]string{"AWS_ENDPOINT_URL_S3": s.URL, "AWS_REGION": "us-east-1",
		"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": Secret} {
		t.Setenv(name, value)
	}
	return s
}

// Secret is the password, which nothing may print.
const Secret = "the-secret-of-this-test"

// Fault says what goes wrong from now on; nil: nothing.
func (s *Server) Fault(f func(r *http.Request) Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// ServeHTTP answers one request, or does what is wrong with it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind := None
	s.mu.Lock()
	if s.fault != nil {
		kind = s.fault(r)
	}
	s.mu.Unlock()
	switch kind {
	case Refused:
		panic(http.ErrAbortHandler)
	case Cut:
		_, _ = io.CopyN(io.Discard, r.Body, max(1, r.ContentLength/2))
		panic(http.ErrAbortHandler)
	case Error500:
		fail(w, http.StatusInternalServerError, "InternalError")
	case SlowDown:
		fail(w, http.StatusServiceUnavailable, "SlowDown")
	case Denied:
		fail(w, http.StatusForbidden, "AccessDenied")
	case Skewed:
		fail(w, http.StatusForbidden, "RequestTimeTooSkewed")
	case Late:
		s.late(r)
	case None:
		s.real.ServeHTTP(w, r)
	default:
		s.spoiled(kind, w, r)
	}
}

// lateness is after how long a late request is done although its connection is still there.
const lateness = time.Second

// late does the request when nobody waits for its answer any more.
func (s *Server) late(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // it has not arrived
	}
	select {
	case <-r.Context().Done():
	case <-time.After(lateness):
	}
	r = r.WithContext(context.WithoutCancel(r.Context()))
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.real.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// spoiled does the request and spoils its answer.
func (s *Server) spoiled(kind Kind, w http.ResponseWriter, r *http.Request) {
	answer := httptest.NewRecorder()
	s.real.ServeHTTP(answer, r)
	body := answer.Body.Bytes()
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	switch {
	case kind == Lost:
		panic(http.ErrAbortHandler)
	case kind == WrongETag && answer.Code < 300:
		w.Header().Set("ETag", `"0123456789abcdef0123456789abcdef"`)
	case kind == Truncated && len(body) > 1:
		w.Header().Del("Content-Length")
		body = body[:len(body)/2]
	case kind == CutAnswer && len(body) > 1:
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body[:len(body)/2])
		panic(http.ErrAbortHandler)
	case kind == ErrorInBody && strings.Contains(r.URL.RawQuery, "uploadId") && r.Method == http.MethodPost:
		w.Header().Del("Content-Length")
		fail(w, http.StatusOK, "InternalError")
		return
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(body)
}

func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>`+code+`</Code><Message>injected</Message></Error>`)
}

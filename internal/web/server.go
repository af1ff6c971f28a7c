package web

import (
	"io"
	"log"
	"net/http"
	"time"
)

// Limits on what a client may take. Without them a client that sends nothing keeps its connection
// for ever, and a few hundred of them keep everybody else out.
const (
	HeaderTime  = 10 * time.Second // to send a request's headers
	BodyTime    = 20 * time.Second // to send headers and body
	idleTime    = time.Minute      // between two requests of a connection
	headerBytes = 64 << 10
)

// NewServer is an HTTP server with limits. read is how long a client may take to send a request,
// BodyTime where it is 0; write is how long an answer may take, without limit where it is 0.
func NewServer(h http.Handler, read, write time.Duration) *http.Server {
	if read == 0 {
		read = BodyTime
	}
	return &http.Server{Handler: unhurried(h), ReadHeaderTimeout: min(HeaderTime, read), ReadTimeout: read, WriteTimeout: write, IdleTimeout: idleTime,
		MaxHeaderBytes: headerBytes, ErrorLog: log.New(io.Discard, "", 0)}
}

// unhurried lifts the limit on reading once a request has been read: the time of an answer, as of
// a page that follows a run, does not count. Go's server would otherwise end the request when the
// limit passes, as if the client had left.
func unhurried(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lift := func() {
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a test's writer has none
		}
		if r.ContentLength == 0 {
			lift()
		} else {
			r.Body = &body{r.Body, lift}
		}
		h.ServeHTTP(w, r)
	})
}

// body calls ended when all of it has been read.
type body struct {
	io.ReadCloser
	ended func()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.ended()
	}
	return n, err
}

package web

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener and the clients' way to it, in memory: in a bubble of synctest, where time
// passes when all wait, a machine that is slow changes nothing.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	p <- theirs
	return ours, nil
}

// Claim: a client that does not send what it announced loses its connection when its time is up; an
// answer that takes longer than a client may take to send does not.
func TestServerLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const read = 10 * time.Second
		server := NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			select {
			case <-time.After(3 * read):
				io.WriteString(w, "done")
			case <-r.Context().Done():
				t.Errorf("%s: the request ends after %v: %v", r.Method, read, r.Context().Err())
			}
		}), read, 0)
		l := make(pipes)
		go server.Serve(l)
		defer server.Close()
		transport := &http.Transport{DialContext: l.dial}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport}
		for _, method := range []string{"GET", "POST"} {
			body := map[string]io.Reader{"POST": strings.NewReader("{}")}[method]
			r, _ := http.NewRequest(method, "http://server/", body)
			reply, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(reply.Body); string(text) != "done" {
				t.Errorf("%s: %q (%v)", method, text, err)
			}
			reply.Body.Close()
		}
		never, writer := io.Pipe()
		defer writer.Close()
		began := time.Now()
		r, _ := http.NewRequest("POST", "http://server/", never)
		r.ContentLength = 100
		if reply, err := client.Do(r); err == nil {
			reply.Body.Close()
			if reply.StatusCode != 400 {
				t.Errorf("a body that never comes: %d", reply.StatusCode)
			}
		}
		if d := time.Since(began); d < read || d > 2*read {
			t.Errorf("a body that never comes has its connection for %v", d)
		}
	})
}

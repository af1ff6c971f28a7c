package serve

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func post(n int) *http.Request {
	return httptest.NewRequest("POST", "/v1/completions", bytes.NewReader(make([]byte, n)))
}

// Claim (docs/serve.md, Memory and limits): of large bodies two are in flight at once, a third
// waits and gets 503 with Retry-After; small ones never wait for them; Close frees its share.
func TestIntakeBoundsLargeBodies(t *testing.T) {
	in := newIntake(1 << 20)
	in.wait = 50 * time.Millisecond
	var waiting []*inFlight
	for range largeBodies {
		b, err := in.read(httptest.NewRecorder(), post(1<<20))
		if err != nil || len(b.data) != 1<<20 {
			t.Fatal(err)
		}
		waiting = append(waiting, b)
	}
	if _, err := in.read(httptest.NewRecorder(), post(smallBody+1)); !errors.Is(err, busy) {
		t.Errorf("a third large body: %v", err)
	}
	for range 2 * smallBodies {
		b, err := in.read(httptest.NewRecorder(), post(100))
		if err != nil {
			t.Fatal("a small body: ", err)
		}
		b.Close()
	}
	waiting[0].Close()
	waiting[0].Close() // gives its share once
	b, err := in.read(httptest.NewRecorder(), post(smallBody))
	if err != nil {
		t.Fatal("a large body after one has ended: ", err)
	}
	if _, err := in.read(httptest.NewRecorder(), post(smallBody+1)); !errors.Is(err, busy) {
		t.Errorf("a third large body again: %v", err)
	}
	b.Close()
	w := httptest.NewRecorder()
	if refuse(w, busy); w.Code != 503 || w.Header().Get("Retry-After") != "10" {
		t.Errorf("%d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
}

// Claim: a body over the limit, announced or not, is refused, and gives back what it took.
func TestIntakeRefusesTooLarge(t *testing.T) {
	in := newIntake(1 << 20)
	in.wait = time.Second
	for range 10 {
		var large *http.MaxBytesError
		if _, err := in.read(httptest.NewRecorder(), post(1<<20+1)); !errors.As(err, &large) {
			t.Errorf("announced: %v", err)
		}
		r := httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader("{"), bytes.NewReader(make([]byte, 1<<20))))
		r.ContentLength = -1
		if _, err := in.read(httptest.NewRecorder(), r); !errors.As(err, &large) {
			t.Errorf("not announced: %v", err)
		}
	}
}

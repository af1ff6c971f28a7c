package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestAccessLog: a line a request, with its status and bytes, without its query, key and body; what cannot be written is said once.
func TestAccessLog(t *testing.T) {
	var out bytes.Buffer
	l := &accessLog{to: &out, warn: t.Errorf}
	h := l.wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		fmt.Fprint(w, "12345")
	}))
	for _, path := range []string{"/v1/models?key=secret", "/bad"} {
		r := httptest.NewRequest("POST", path, strings.NewReader("a question"))
		r.Header.Set("Authorization", "Bearer secret")
		r.Header.Set("User-Agent", "test \"1\"\n")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var first, second access
	if len(lines) != 2 || json.Unmarshal([]byte(lines[0]), &first) != nil || json.Unmarshal([]byte(lines[1]), &second) != nil {
		t.Fatalf("%q", lines)
	}
	if first.Path != "/v1/models" || first.Method != "POST" || first.Status != 200 || first.Bytes != 5 || first.Remote != "192.0.2.1" || second.Path != "/bad" {
		t.Errorf("%+v, %+v", first, second)
	}
	if strings.Contains(out.String(), "secret") || strings.Contains(out.String(), "question") {
		t.Errorf("a secret is in %s", out.String())
	}
	warnings := 0
	broken := &accessLog{to: failing{}, warn: func(string, ...any) { warnings++ }}
	for range 3 {
		broken.wrap(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
	if warnings != 1 {
		t.Errorf("%d warnings, want 1", warnings)
	}
}

// failing is a full disk.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no space left") }

package web

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Claim (Fetch standard, Origin and Sec-Fetch-Site; DNS rebinding): what a page of another site
// can make a browser send is refused; programs, the server's own pages and allowed origins pass.
func TestGuard(t *testing.T) {
	g := &Guard{Origins: []string{"https://ok.example"}, Hosts: []string{"proxied.example"}}
	s := httptest.NewServer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "done") })))
	defer s.Close()
	own := strings.TrimPrefix(s.URL, "http://")
	for _, c := range []struct {
		what, method, host, headers string
		status                      int
	}{
		{"curl -d", "POST", "", "Content-Type: application/x-www-form-urlencoded", 200},
		{"localhost", "POST", "localhost:80", "", 200},
		{"its own page", "POST", "", "Origin: http://" + own + "\nSec-Fetch-Site: same-origin", 200},
		{"a proxy's name", "POST", "proxied.example", "", 200},
		{"a link from another site", "GET", "", "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nReferer: https://evil.example/x", 200},
		{"an allowed page", "POST", "", "Origin: https://ok.example\nSec-Fetch-Site: cross-site", 200},
		{"its preflight", "OPTIONS", "", "Origin: https://ok.example\nAccess-Control-Request-Method: POST\nAccess-Control-Request-Headers: content-type,x-stainless-os", 204},
		{"DNS rebinding", "POST", "evil.example:80", "Origin: http://evil.example:80\nSec-Fetch-Site: same-origin", 403},
		{"another site's fetch", "POST", "", "Origin: https://evil.example\nContent-Type: text/plain", 403},
		{"its reading", "GET", "", "Origin: https://evil.example", 403},
		{"its preflight, refused", "OPTIONS", "", "Origin: https://evil.example\nAccess-Control-Request-Method: POST", 403},
		{"a page without an origin", "POST", "", "Origin: null", 403},
		{"another port", "POST", "", "Origin: http://127.0.0.1:1", 403},
		{"a form, without Origin", "POST", "", "Sec-Fetch-Site: cross-site\nContent-Type: text/plain", 403},
		{"an old browser's form", "POST", "", "Referer: https://evil.example/page", 403},
	} {
		r, _ := http.NewRequest(c.method, s.URL+"/x", strings.NewReader("{}"))
		r.Host = c.host
		for line := range strings.SplitSeq(c.headers, "\n") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				r.Header.Set(name, value)
			}
		}
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
		if reply.StatusCode != c.status {
			t.Errorf("%s: %d, want %d", c.what, reply.StatusCode, c.status)
		}
		shown := reply.Header.Get("Access-Control-Allow-Origin")
		if want := map[bool]string{true: "https://ok.example"}[strings.Contains(c.headers, "ok.example")]; shown != want {
			t.Errorf("%s: Access-Control-Allow-Origin is %q, want %q", c.what, shown, want)
		}
	}
}

// Claim: Check reports what is not an origin or a host name.
func TestGuardCheck(t *testing.T) {
	if err := (&Guard{Origins: []string{"*", "https://a.example", "http://b:80"}, Hosts: []string{"a.example"}}).Check(); err != nil {
		t.Error(err)
	}
	for _, g := range []Guard{{Origins: []string{"a.example"}}, {Origins: []string{"https://a.example/"}}, {Hosts: []string{"http://a"}}, {Hosts: []string{""}}} {
		if g.Check() == nil {
			t.Errorf("%+v passes", g)
		}
	}
}

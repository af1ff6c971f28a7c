package serve

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/internal/golden"
)

// Claim (docs/serve.md, Pages of other sites): programs ask as before; pages of other sites only
// where --cors-origin names them, and a body that says it is not JSON is refused.
func TestWhoMayAsk(t *testing.T) {
	url := start(t, "--load", golden.Dir(t, "serve", "model"), "--cors-origin", "https://ok.example", "--cors-origin", "https://too.example")
	for _, c := range []struct {
		header, value string
		status        int
		says          string
	}{
		{"", "", 200, ""},
		{"Content-Type", "application/x-www-form-urlencoded", 200, ""},
		{"Content-Type", "application/json; charset=utf-8", 200, ""},
		{"Content-Type", "text/plain", 415, `Content-Type \"text/plain\": this server reads JSON; send application/json`},
		{"Content-Type", "multipart/form-data; boundary=x", 415, "this server reads JSON"},
		{"Origin", "https://ok.example", 200, ""},
		{"Origin", "https://too.example", 200, ""},
		{"Origin", url, 200, ""},
		{"Origin", "https://evil.example", 403, `"message":"the origin https://evil.example is not allowed by this server"`},
		{"Sec-Fetch-Site", "cross-site", 403, "the request comes from a page of another site"},
		{"Host", "evil.example", 403, "the host evil.example is not a name of this server"},
	} {
		r, _ := http.NewRequest("POST", url+"/v1/completions", strings.NewReader(`{"prompt": "x", "max_tokens": 1}`))
		if c.header == "Host" {
			r.Host = c.value
		} else if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(reply.Body)
		reply.Body.Close()
		if reply.StatusCode != c.status || !strings.Contains(string(body), c.says) {
			t.Errorf("%s: %s: %d %s", c.header, c.value, reply.StatusCode, body)
		}
	}
	_, w := io.Pipe()
	want := "origin ok.example is not of the form scheme://host[:port]; use one such as https://example.org, or *"
	if err := call(context.Background(), w, "--load", "x", "--cors-origin", "ok.example"); exitcode.CodeOf(err) != exitcode.Usage || err.Error() != "--cors-origin, --allowed-host: "+want {
		t.Errorf("an origin without scheme: %v", err)
	}
}

// Claim (docs/serve.md): a server that others reach without a key says so.
func TestOpenServer(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:8000": false, "localhost:8000": false, "[::1]:8000": false, "0.0.0.0:8000": true, ":8000": true, "10.0.0.1:8000": true} {
		if got := (&server{options: options{address: address}}).open(); got != want {
			t.Errorf("%s: %v", address, got)
		}
		if (&server{options: options{address: address, keys: []string{"k"}}}).open() {
			t.Errorf("%s with a key is open", address)
		}
	}
}

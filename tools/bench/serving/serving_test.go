package serving

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/tools/internal/command"
)

// bench runs the command against a server and gives its JSON.
func bench(t *testing.T, h http.Handler, args ...string) (r results, text string, err error) {
	t.Helper()
	s := httptest.NewServer(h)
	defer s.Close()
	var out bytes.Buffer
	flags := append(Flags(), &cli.StringFlag{Name: "model", Value: "gpt2-124m"}, &cli.BoolFlag{Name: "json"})
	app := &cli.App{Commands: []*cli.Command{command.Wrap(&cli.Command{Name: "serving", Flags: flags, Action: Run})},
		Writer: &out, ErrWriter: io.Discard, ExitErrHandler: func(*cli.Context, error) {}}
	err = app.RunContext(context.Background(), append([]string{"monotron", "serving", "--base-url", s.URL + "/"}, args...))
	if json.Valid(out.Bytes()) {
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
	}
	return r, out.String(), err
}

// fake is a server whose completions are answered by each, which gets their number.
func fake(each func(n int, w http.ResponseWriter, body map[string]any)) http.Handler {
	mux, n, mu := http.NewServeMux(), 0, sync.Mutex{}
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"data": [{"id": "parrot"}]}`)
	})
	answer := func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		mu.Lock()
		mine := n
		n++
		mu.Unlock()
		each(mine, w, body)
	}
	mux.HandleFunc("POST /v1/completions", answer)
	mux.HandleFunc("POST /v1/chat/completions", answer)
	return mux
}

const full = "data: {\"choices\": [{\"text\": \"a\"}]}\n\ndata: {\"choices\": [{\"text\": \"\"}]}\n\ndata: {\"choices\": [{\"text\": \"b\"}]}\n\n" +
	"data: {\"choices\": [], \"usage\": {\"completion_tokens\": 7}}\n\ndata: [DONE]\n\n"

// Claim: every request is counted once, by what came of it; the first, which only greets, is not.
func TestCounts(t *testing.T) {
	asked := map[string]bool{}
	var mu sync.Mutex
	r, _, err := bench(t, fake(func(n int, w http.ResponseWriter, body map[string]any) {
		mu.Lock()
		asked[body["prompt"].(string)] = true
		mu.Unlock()
		switch {
		case n == 0 || n%4 > 1:
			fmt.Fprint(w, full)
		case n%4 == 1:
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			fmt.Fprint(w, strings.TrimSuffix(full, "data: [DONE]\n\n"))
		}
		if body["model"] != "parrot" || len(strings.Fields(body["prompt"].(string))) != 5 {
			t.Errorf("asked %v", body)
		}
	}), "--json", "--request-rate", "5000", "--num-requests", "40", "--prompt-words", "5", "--shared-words", "2")
	if err != nil {
		t.Fatal(err)
	}
	one := r.Rates[0]
	if one.Requests != 40 || one.Answered != 20 || one.Failed["status 429"] != 10 || one.Failed["the stream ended early"] != 10 || one.Tokens != 140 || one.Good != 20 {
		t.Errorf("%+v", one)
	}
	if len(asked) != 41 || r.Model != "parrot" {
		t.Errorf("%d prompts of model %s", len(asked), r.Model)
	}
	begin := ""
	for prompt := range asked {
		two := strings.Join(strings.Fields(prompt)[:2], " ")
		if begin != "" && two != begin {
			t.Errorf("%q does not begin with %q", prompt, begin)
		}
		begin = two
	}
}

// Claim: requests go out at their times whether or not others are answered: here none is
// before all have come.
func TestOpenLoop(t *testing.T) {
	const requests = 30
	var all sync.WaitGroup
	all.Add(requests)
	_, text, err := bench(t, fake(func(n int, w http.ResponseWriter, body map[string]any) {
		if n > 0 {
			all.Done()
			all.Wait()
		}
		if _, chats := body["messages"]; !chats || body["model"] != "own" {
			t.Errorf("asked %v", body)
		}
		fmt.Fprint(w, "data: {\"choices\": [{\"delta\": {\"content\": \"a\"}}]}\n\ndata: [DONE]\n\n")
	}), "--chat", "--request-rate", "1000", "--num-requests", fmt.Sprint(requests), "--model", "own")
	if err != nil || !strings.Contains(text, "30 of 30") {
		t.Fatalf("%v\n%s", err, text)
	}
}

// Claim: gaps between arrivals are exponential of the rate, and the same for a seed.
func TestArrivals(t *testing.T) {
	const n, rate = 100_000, 50
	at := arrivals(3, n, rate)
	if again := arrivals(3, n, rate); again[n-1] != at[n-1] || arrivals(4, n, rate)[n-1] == at[n-1] {
		t.Error("arrivals do not depend on the seed alone")
	}
	mean := at[n-1].Seconds() / n * rate
	beyond, before := 0, time.Duration(0)
	for _, x := range at {
		if (x-before).Seconds()*rate > 1 {
			beyond++
		}
		before = x
	}
	if share := float64(beyond) / n; math.Abs(mean-1) > 0.02 || math.Abs(share-math.Exp(-1)) > 0.01 {
		t.Errorf("mean gap %g of 1/rate; %g of the gaps are longer, %g of exponential ones are", mean, share, math.Exp(-1))
	}
}

// Claim: percentiles are values that occurred.
func TestTimes(t *testing.T) {
	var list []time.Duration
	for i := range 100 {
		list = append(list, time.Duration(100-i)*time.Second)
	}
	if got := timesOf(list); got != (times{Mean: 50.5, P50: 50, P95: 95, P99: 99}) {
		t.Errorf("%+v", got)
	}
	if got := timesOf([]time.Duration{2 * time.Second}); got != (times{2, 2, 2, 2}) {
		t.Errorf("%+v", got)
	}
}

// Claim: what cannot be measured is said in one error.
func TestRefusals(t *testing.T) {
	for line, want := range map[string]string{
		"--base-url localhost:8000 --request-rate 0": "--base-url \"localhost:8000\" must have the form http://HOST:PORT\n--request-rate must be above 0, not 0",
		"--prompt-words 3 --shared-words 4":          "--shared-words 4 must not exceed --prompt-words, which is 3",
	} {
		if _, _, err := bench(t, fake(nil), strings.Fields(line)...); exitcode.CodeOf(err) != exitcode.Usage || err.Error() != want {
			t.Errorf("%s: %v", line, err)
		}
	}
	_, _, err := bench(t, fake(func(_ int, w http.ResponseWriter, _ map[string]any) { w.WriteHeader(http.StatusUnauthorized) }))
	if err == nil || !strings.Contains(err.Error(), "the first request failed: status 401") {
		t.Error(err)
	}
	if _, _, err = bench(t, http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), "/v1/models: status 404") {
		t.Error(err)
	}
}

package serve

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"monotron/internal/golden"
	"monotron/tokenizer"
	"monotron/tools/internal/answering"
)

// Claim (docs/serve.md): /props says what the model is: of 2 layers of 32, its parameters by the formula of a Llama of this shape.
func TestProps(t *testing.T) {
	url := start(t, "--load", golden.Dir(t, "serve", "model"), "--served-model-name", "tiny")
	reply, err := http.Get(url + "/props")
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	var got struct {
		Model      string
		Models     []string
		Chat       bool
		Parameters int
		Layers     int
		Hidden     int `json:"hidden_size"`
		Vocabulary int
		Context    int
	}
	if err := json.NewDecoder(reply.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Model != "tiny" || len(got.Models) != 1 || !got.Chat || got.Parameters != 126464/4 || got.Layers != 2 || got.Hidden != 32 || got.Vocabulary != 128 || got.Context != 64 {
		t.Errorf("%+v", got)
	}
}

// Claim: the page is one file whose policy runs no script but its own, and asks nobody but its server.
func TestPageHasAPolicy(t *testing.T) {
	url := start(t, "--load", golden.Dir(t, "serve", "model"))
	reply, err := http.Get(url + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	if strings.Count(page, "'sha256-") != 4 || strings.Contains(page, "unsafe") || !strings.Contains(page, "connect-src 'self'") || strings.Contains(page, "src=\"") || len(page) > 60_000 {
		t.Errorf("%d bytes, policy %.600s", len(page), page)
	}
}

// Claim (docs/serve.md): every metric of docs/grafana/serve.json is one that /metrics has after an answer.
func TestBoardShowsWhatIsServed(t *testing.T) {
	board, err := os.ReadFile(filepath.Join("..", "..", "docs", "grafana", "serve.json"))
	if err != nil {
		t.Fatal(err)
	}
	url := start(t, "--load", golden.Dir(t, "serve", "model"))
	if status, body := request(t, "POST", url+"/v1/completions", `{"prompt": "x", "max_tokens": 2}`); status != http.StatusOK {
		t.Fatalf("%s", body)
	}
	_, served := request(t, "GET", url+"/metrics", "")
	names := regexp.MustCompile(`monotron:\w+`).FindAllString(string(board), -1)
	if len(names) < 15 {
		t.Fatalf("%d names on the board", len(names))
	}
	for _, name := range names {
		if !strings.Contains(string(served), "\n"+name+"{") {
			t.Errorf("the board shows %s, which is not served", name)
		}
	}
}

// Claim (docs/serve.md): the page proposes no text that the model cannot read, as one with the characters of a
// small corpus, or that leaves no context for an answer.
func TestExamplesAreReadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vocab.json")
	if err := os.WriteFile(path, []byte(`["O"," ","n","c","e","u","p","o","a","t","i","m","T","h","s","r","g","k","w","b"]`), 0o644); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromConfig(tokenizer.Config{Type: "CharTokenizer", VocabFile: path})
	if err != nil {
		t.Fatal(err)
	}
	for context, want := range map[int]int{0: 2, 128: 2, 64: 1, 8: 0} {
		l := &loaded{Model: &answering.Model{Tok: tok, Context: context}}
		if got := l.readable(); len(got["text"]) != want || len(got["chat"]) != 0 || want > 0 && got["text"][0] != "Once upon a time" {
			t.Errorf("context %d: %q", context, got)
		}
	}
	if got := (&loaded{Model: &answering.Model{}}).readable(); len(got["text"]) != 0 || got["chat"] == nil {
		t.Errorf("without a tokenizer: %q", got)
	}
}

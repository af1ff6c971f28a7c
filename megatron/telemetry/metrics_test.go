package telemetry

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"monotron/internal/exitcode"
)

// Claim: Prometheus sees the latest step, evaluations with it, and a taken
// address is an error that names the flag.
func TestMetrics(t *testing.T) {
	m, err := ServeMetrics("127.0.0.1:0", "v9")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ServeMetrics(m.Addr(), "v9"); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "--metrics-addr") {
		t.Errorf("a taken address: %v", err)
	}
	norm := 1.5
	steps := Sinks{m}
	var scorer Scorer
	scorer.Score([]float64{2, 1, 4, 4}, []int{0, 0, 1, 1})
	line := &Interval{Scores: scorer.Score([]float64{2, 4, 4, 5}, []int{0, 0, 1, 1})}
	if err := errors.Join(steps.Take(&Step{Iteration: 3, Line: line, Losses: []Value{{"lm loss", 2.5}}, GradNorm: &norm, Update: time.Second / 4, Skipped: true}),
		steps.Take(&Step{Iteration: 3, Split: Validation, Losses: []Value{{"lm loss", 2.75}}})); err != nil {
		t.Fatal(err)
	}
	response, err := http.Get("http://" + m.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"monotron_iteration 3\n", `monotron_loss{name="lm loss",set="training"} 2.5`, `monotron_loss{name="lm loss",set="validation"} 2.75`,
		"monotron_grad_norm 1.5\n", `monotron_phase_seconds{phase="optimizer"} 0.25`, "monotron_skipped_iterations_total 1\n",
		`monotron_straggler_score{against="others"} 0.5`, `monotron_straggler_score{against="past"} 0.25`, `monotron_straggler_rank{against="past"} 1`, `version="v9"} 1`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	health, err := http.Get("http://" + m.Addr() + "/health")
	if err != nil || health.StatusCode != http.StatusOK {
		t.Errorf("/health: %v, %v", health, err)
	}
	health.Body.Close()
	checkOpenMetrics(t, "http://"+m.Addr()+"/metrics")
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// checkOpenMetrics: who asks for OpenMetrics gets it, where a counter's family is named
// without _total, its sample with it, no two families share a name and # EOF ends the
// text (OpenMetrics 1.0, "Counter" and "Overall Structure").
func checkOpenMetrics(t *testing.T, url string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if kind := response.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/openmetrics-text") || !strings.HasSuffix(string(text), "# EOF\n") {
		t.Errorf("%s:\n%s", kind, text)
	}
	families := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) `).FindAllStringSubmatch(string(text), -1) {
		if families[m[1]] || strings.HasSuffix(m[1], "_total") {
			t.Errorf("family %s", m[1])
		}
		families[m[1]] = true
	}
	if !families["monotron_skipped_iterations"] || !strings.Contains(string(text), "monotron_skipped_iterations_total 1.0\n") {
		t.Errorf("no counter of skipped iterations:\n%s", text)
	}
}

// TestBoardShowsWhatIsServed: every metric of docs/grafana/train.json is one that /metrics has after a step with all there is.
func TestBoardShowsWhatIsServed(t *testing.T) {
	board, err := os.ReadFile(filepath.Join("..", "..", "docs", "grafana", "train.json"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := ServeMetrics("127.0.0.1:0", "v1")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	norm := 1.0
	s := &Step{Iteration: 1, Losses: []Value{{"lm loss", 1}}, GradNorm: &norm, Elapsed: time.Second, Alerts: []Alert{{Kind: "x"}}, MoELayers: []MixtureLayer{{Number: 1, Tokens: []float64{1, 2}}},
		Line: &Interval{Scores: &Scores{Others: []float64{1, 0.5}, Past: []float64{1, 1}}}}
	if err := m.Take(s); err != nil {
		t.Fatal(err)
	}
	reply, err := http.Get("http://" + m.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	served, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`monotron_\w+`).FindAllString(string(board), -1)
	if len(names) < 20 {
		t.Fatalf("%d names on the board", len(names))
	}
	for _, name := range names {
		if !strings.Contains(string(served), "\n"+name+"{") && !strings.Contains(string(served), "\n"+name+" ") {
			t.Errorf("the board shows %s, which is not served", name)
		}
	}
}

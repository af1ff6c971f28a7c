package report

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"monotron/fault"
)

// Claim: Prometheus sees the latest step, evaluations beside it, and a taken
// address is an error that names the flag.
func TestMetrics(t *testing.T) {
	m, err := ServeMetrics("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ServeMetrics(m.Addr()); fault.CodeOf(err) != fault.Usage || !strings.Contains(err.Error(), "--metrics-addr") {
		t.Errorf("a taken address: %v", err)
	}
	norm := 1.5
	steps := Sinks{m}
	if err := errors.Join(steps.Take(&Step{Iteration: 3, Losses: []Value{{"lm loss", 2.5}}, GradNorm: &norm, Update: time.Second / 4, Skipped: true}),
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
		"monotron_grad_norm 1.5\n", `monotron_phase_seconds{phase="optimizer"} 0.25`, "monotron_skipped_iterations_total 1\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

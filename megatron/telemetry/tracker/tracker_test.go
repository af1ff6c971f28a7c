package tracker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"

	"monotron/internal/exitcode"
	"monotron/megatron/telemetry"
)

// warnings gathers what a sink says.
type warnings struct {
	mu   sync.Mutex
	list []string
}

func (w *warnings) warn(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, fmt.Sprintf(format, args...))
}

func (w *warnings) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.list)
}

func (w *warnings) options() Options {
	return Options{Warn: w.warn, AtEnd: 2 * time.Second, Pause: time.Millisecond}
}

var start = time.UnixMilli(1_700_000_000_000).UTC()

// step is a training step of a run of four.
func step(i int) *telemetry.Step {
	norm := 0.5
	return &telemetry.Step{Time: start.Add(time.Duration(i) * time.Second), Iteration: i, TrainIters: 4, Losses: []telemetry.Value{{Name: "lm loss", Value: 1 / float64(i)}}, GradNorm: &norm,
		Elapsed: time.Second, Tokens: 64, NextLearningRate: 1e-3, Alerts: nil}
}

func evaluation(i int) *telemetry.Step {
	return &telemetry.Step{Time: start.Add(time.Duration(i) * time.Second), Iteration: i, Split: telemetry.Validation, Losses: []telemetry.Value{{Name: "lm loss", Value: math.NaN()}},
		Written: []telemetry.Sample{{Prompt: "a", Text: "a text"}}}
}

// TestSenderLosesNothingWhileItHasSpace: a server that fails for a while gets every step, in order; one warning, and one when it answers again.
func TestSenderLosesNothingWhileItHasSpace(t *testing.T) {
	w, failures := &warnings{}, 3
	var got []int
	arrived := make(chan struct{})
	s := newSender("--x", w.options(), func(_ context.Context, list []entry) error {
		if failures--; failures >= 0 {
			return errors.New("refused")
		}
		for _, e := range list {
			if got = append(got, e.iteration); e.iteration == 250 {
				close(arrived)
			}
		}
		return nil
	})
	var want []int
	for i := 1; i <= 250; i++ {
		want = append(want, i)
		if err := s.Take(step(i)); err != nil {
			t.Fatal(err)
		}
	}
	<-arrived
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v arrived", got)
	}
	if all := w.all(); len(all) != 2 || !strings.Contains(all[0], "--x: refused") || !strings.HasSuffix(all[1], "no entries are missing") {
		t.Errorf("warnings %q", all)
	}
}

// TestSenderCountsWhatDoesNotFit: no step waits for a server that stands still; steps that do not fit in the queue
// are counted, with their iterations.
func TestSenderCountsWhatDoesNotFit(t *testing.T) {
	w, gate := &warnings{}, make(chan struct{})
	o := w.options()
	o.Most = 5
	entered := make(chan struct{}, 1)
	first := true
	var got []int
	s := newSender("--x", o, func(_ context.Context, list []entry) error {
		if first {
			first = false
			entered <- struct{}{}
			<-gate
			return errors.New("gone")
		}
		for _, e := range list {
			got = append(got, e.iteration)
		}
		return nil
	})
	_ = s.Take(step(1))
	<-entered
	for i := 2; i <= 10; i++ { // 2 to 6 wait, 7 to 10 do not fit
		_ = s.Take(step(i))
	}
	close(gate)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if want := []int{1, 2, 3, 4, 5, 6}; !slices.Equal(got, want) {
		t.Errorf("%v arrived, want %v", got, want)
	}
	if all := w.all(); len(all) != 2 || !strings.Contains(all[1], "4 entries of iterations 7 to 10 are missing") {
		t.Errorf("warnings %q", all)
	}
}

// TestSenderEndsWithTheRun: a server that never answers holds up the end for AtEnd at most, and what is lost is said.
func TestSenderEndsWithTheRun(t *testing.T) {
	w := &warnings{}
	o := w.options()
	o.AtEnd = 20 * time.Millisecond
	s := newSender("--x", o, func(ctx context.Context, _ []entry) error { <-ctx.Done(); return ctx.Err() })
	for i := 1; i <= 150; i++ {
		_ = s.Take(step(i))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if all := w.all(); len(all) != 2 || !strings.Contains(all[1], "150 entries of iterations 1 to 150 could not be sent") {
		t.Errorf("warnings %q", all)
	}
}

// TestSenderContinuesWhileSomethingArrives: the end of a run waits for a slow server as long as it takes steps, also longer than AtEnd,
// but not for ever; what arrived and what is reported as lost is everything.
func TestSenderContinuesWhileSomethingArrives(t *testing.T) {
	for name, c := range map[string]struct {
		atEnd time.Duration
		lost  bool
	}{"slow": {3 * time.Second, false}, "slower than the longest end": {20 * time.Millisecond, true}} {
		t.Run(name, func(t *testing.T) {
			w, arrived := &warnings{}, 0
			o := w.options()
			o.AtEnd = c.atEnd
			s := newSender("--x", o, func(ctx context.Context, list []entry) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(45 * time.Millisecond): // 80 groups: longer than AtEnd, which a busy machine does not reach for one
					arrived += len(list)
					return nil
				}
			})
			const all = 8000
			for i := range all {
				_ = s.Take(step(i + 1))
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			lost := 0
			if said := w.all(); len(said) > 0 {
				_, _ = fmt.Sscanf(said[len(said)-1], "--x: %d entries", &lost)
			}
			if arrived+lost != all || c.lost != (lost > 0) {
				t.Errorf("%d arrived, %d are reported as lost: %q", arrived, lost, w.all())
			}
		})
	}
}

// TestSenderTriesAgainAtTheEnd: a server that fails when the run ends and works soon after gets everything.
func TestSenderTriesAgainAtTheEnd(t *testing.T) {
	w, failures, arrived := &warnings{}, 0, 0
	o := w.options()
	o.AtEnd = time.Minute
	var s *sender
	entered := make(chan struct{})
	s = newSender("--x", o, func(_ context.Context, list []entry) error {
		if failures++; failures == 1 {
			close(entered)
			<-s.closing.Done()
		}
		if failures <= 4 {
			return errors.New("starting")
		}
		arrived += len(list)
		return nil
	})
	_ = s.Take(step(1))
	<-entered
	_ = s.Take(step(2))
	if err := s.Close(); err != nil || arrived != 2 {
		t.Errorf("%d of 2 arrived: %v, %q", arrived, err, w.all())
	}
}

// TestSenderMakesGroupsSmaller: a server that takes too long for 100 steps gets fewer at once, and as many as before when it is fast again.
func TestSenderMakesGroupsSmaller(t *testing.T) {
	w := &warnings{}
	o := w.options()
	o.AtEnd, o.Call = time.Minute, 20*time.Millisecond
	var sizes []int
	var got []int
	s := newSender("--x", o, func(ctx context.Context, list []entry) error {
		sizes = append(sizes, len(list))
		if len(got) < 50 && len(list) > 25 {
			<-ctx.Done()
			return ctx.Err()
		}
		for _, e := range list {
			got = append(got, e.iteration)
		}
		return nil
	})
	var want []int
	for i := 1; i <= 500; i++ {
		want = append(want, i)
		_ = s.Take(step(i))
	}
	if err := s.Close(); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %d arrived: %v", err, len(got), got)
	}
	if least, most := slices.Min(sizes), sizes[len(sizes)-2]; least > 25 || most != 100 {
		t.Errorf("groups of %v", sizes)
	}
}

// fakeMLflow is a tracking server as far as runs use it.
type fakeMLflow struct {
	mu    sync.Mutex
	calls []string // path and body
	auth  string
	saved string // id of a run that search finds
	bad   bool   // log-batch is refused for good
}

func (f *fakeMLflow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	path := strings.TrimPrefix(r.URL.Path, "/api/2.0/mlflow/")
	f.calls, f.auth = append(f.calls, path+" "+string(body)), r.Header.Get("Authorization")
	switch path {
	case "experiments/get-by-name":
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"error_code":"RESOURCE_DOES_NOT_EXIST","message":"none"}`)
	case "experiments/create":
		fmt.Fprint(w, `{"experiment_id":"7"}`)
	case "runs/search":
		fmt.Fprintf(w, `{"runs":[{"info":{"run_id":%q}}]}`, f.saved)
	case "runs/create":
		fmt.Fprint(w, `{"run":{"info":{"run_id":"r1"}}}`)
	case "runs/log-batch":
		if f.bad {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error_code":"INVALID_PARAMETER_VALUE","message":"no"}`)
			return
		}
		fmt.Fprint(w, `{}`)
	default:
		fmt.Fprint(w, `{}`)
	}
}

// of are the bodies of the calls of a path.
func (f *fakeMLflow) of(path string) (bodies []string) {
	for _, c := range f.calls {
		if p, body, _ := strings.Cut(c, " "); p == path {
			bodies = append(bodies, body)
		}
	}
	return bodies
}

// sent runs steps through a sink of MLflow.
func sent(t *testing.T, f *fakeMLflow, steps ...*telemetry.Step) *warnings {
	t.Helper()
	server := httptest.NewServer(f)
	defer server.Close()
	w := &warnings{}
	sink, err := NewMLflow(MLflow{URI: server.URL + "/", Experiment: "e x", Save: "/runs/it's", About: &telemetry.About{Name: "a run", Started: start, Version: "v1",
		Command: []string{"pretrain_gpt"}, Flags: []telemetry.Setting{{Name: "lr", Value: "0.1"}}}}, w.options())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if err := sink.Take(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	return w
}

// TestMLflow: a run is made with its flags, gets Megatron's numbers at their steps and times, and its end; what is not finite is left out.
func TestMLflow(t *testing.T) {
	t.Setenv("MLFLOW_TRACKING_USERNAME", "me")
	t.Setenv("MLFLOW_TRACKING_PASSWORD", "secret")
	f := &fakeMLflow{}
	if w := sent(t, f, step(1), step(2), evaluation(2), step(4)).all(); len(w) != 0 {
		t.Errorf("warnings %q", w)
	}
	if f.auth != "Basic bWU6c2VjcmV0" {
		t.Errorf("authorization %q", f.auth)
	}
	if made := f.of("runs/create"); len(made) != 1 || !strings.Contains(made[0], `"run_name":"a run"`) || !strings.Contains(made[0], `{"key":"monotron.save","value":"/runs/its"}`) {
		t.Errorf("made: %s", made)
	}
	metrics, params, tags := map[string]metric{}, []pair{}, []pair{}
	for _, body := range f.of("runs/log-batch") {
		var b batch
		if err := json.Unmarshal([]byte(body), &b); err != nil || b.Run != "r1" {
			t.Fatalf("%s: %v", body, err)
		}
		for _, m := range b.Metrics {
			metrics[fmt.Sprint(m.Key, "@", m.Step)] = m
		}
		params, tags = append(params, b.Params...), append(tags, b.Tags...)
	}
	for name, want := range map[string]float64{"lm loss@1": 1, "lm loss@2": 0.5, "lm loss@4": 0.25, "grad-norm@2": 0.5, "learning-rate@1": 1e-3, "tokens-per-second@4": 64} {
		if m, ok := metrics[name]; !ok || m.Value != want || m.Timestamp != start.UnixMilli()+1000*int64(m.Step) {
			t.Errorf("%s is %+v, want %v", name, m, want)
		}
	}
	if _, there := metrics["lm loss validation@2"]; there {
		t.Error("a number that is not finite was sent")
	}
	if !slices.Contains(params, pair{"lr", "0.1"}) || !slices.Contains(tags, pair{"sample 1", "a text"}) {
		t.Errorf("parameters %v, tags %v", params, tags)
	}
	if end := f.of("runs/update"); len(end) != 1 || !strings.Contains(end[0], "FINISHED") {
		t.Errorf("end: %s", end)
	}
}

// TestMLflowResumes: a resumed run continues the one that saves into the same folder, and one that stops early
// is said to be killed.
func TestMLflowResumes(t *testing.T) {
	f := &fakeMLflow{saved: "old"}
	sent(t, f, step(3))
	if len(f.of("runs/create")) != 0 || !strings.Contains(f.of("runs/search")[0], "tags.`monotron.save` = '/runs/its'") {
		t.Errorf("calls %q", f.calls)
	}
	if end := f.of("runs/update"); len(end) != 2 || !strings.Contains(end[0], "RUNNING") || !strings.Contains(end[1], "KILLED") || !strings.Contains(end[1], `"old"`) {
		t.Errorf("updates: %s", end)
	}
}

// TestMLflowDropsWhatIsRefused: one batch that the server will never take holds up no other.
func TestMLflowDropsWhatIsRefused(t *testing.T) {
	f := &fakeMLflow{bad: true}
	if w := sent(t, f, step(1)).all(); len(w) != 2 || !strings.Contains(w[0], "refuses the flags") || !strings.Contains(w[1], `refuses 13 numbers: HTTP status 400: "no"`) {
		t.Errorf("warnings %q", w)
	}
}

// TestOTLP: what a collector gets, by the protocol's own messages.
func TestOTLP(t *testing.T) {
	var got collector.ExportMetricsServiceRequest
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		paths = append(paths, r.URL.Path)
		var one collector.ExportMetricsServiceRequest
		if err := proto.Unmarshal(body, &one); err != nil {
			t.Error(err)
		}
		proto.Merge(&got, &one)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer server.Close()
	w := &warnings{}
	sink, err := NewOTLP(server.URL, &telemetry.About{Name: "a run", Version: "v1"}, w.options())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*telemetry.Step{step(1), step(2), evaluation(2)} {
		_ = sink.Take(s)
	}
	if err := sink.Close(); err != nil || len(w.all()) != 0 {
		t.Fatal(err, w.all())
	}
	values := map[string]float64{}
	for _, r := range got.ResourceMetrics {
		for _, m := range r.ScopeMetrics[0].Metrics {
			for _, p := range m.GetGauge().DataPoints {
				values[fmt.Sprint(m.Name, "@", time.Unix(0, int64(p.TimeUnixNano)).Sub(start))] = p.GetAsDouble()
			}
		}
	}
	for name, want := range map[string]float64{"lm-loss@1s": 1, "lm-loss@2s": 0.5, "learning-rate@1s": 1e-3, "iteration@2s": 2, "tokens-per-second@2s": 64} {
		if v, ok := values[name]; !ok || v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
	if paths[0] != "/v1/metrics" {
		t.Errorf("path %s", paths[0])
	}
}

// TestAddresses: an invalid URL, and a password in one, end the run before it starts.
func TestAddresses(t *testing.T) {
	w := &warnings{}
	for _, uri := range []string{"", "127.0.0.1:5000", "ftp://x", "http://me:secret@x", "http://"} {
		if _, err := NewMLflow(MLflow{URI: uri, About: &telemetry.About{}}, w.options()); exitcode.CodeOf(err) != exitcode.Usage || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", uri, err)
		}
		if _, err := NewOTLP(uri, &telemetry.About{}, w.options()); exitcode.CodeOf(err) != exitcode.Usage {
			t.Errorf("%q: %v", uri, err)
		}
	}
}

// TestMLflowBatchesAreInItsLimits: 1000 parts of a call, 100 of them tags; nothing is lost between calls.
func TestMLflowBatchesAreInItsLimits(t *testing.T) {
	var list []entry
	want := 0
	for i := range 300 {
		e := entry{iteration: i, curves: telemetry.Curves(step(i+1), telemetry.AllCurves)}
		want += len(e.curves)
		if i%50 == 0 {
			e.written = make([]telemetry.Sample, 130)
		}
		list = append(list, e)
	}
	metrics, tags := 0, map[string]bool{}
	for _, b := range (&mlflow{}).batches(list) {
		if len(b.Metrics)+len(b.Tags) > 1000 || len(b.Tags) > 100 {
			t.Errorf("a call has %d metrics and %d tags", len(b.Metrics), len(b.Tags))
		}
		metrics += len(b.Metrics)
		for _, p := range b.Tags {
			tags[p.Key] = true
		}
	}
	if metrics != want || len(tags) != 130 {
		t.Errorf("%d metrics, want %d; %d tags, want 130", metrics, want, len(tags))
	}
}

// Claim: a server that answers 200 without being MLflow is not taken for one: the warnings say that nothing was sent.
func TestMLflowOfAnotherServer(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; strings.HasSuffix(r.URL.Path, "log-batch") {
			t.Errorf("%s is called without a run", r.URL.Path)
		}
		_, _ = io.WriteString(w, "{}")
	}))
	defer server.Close()
	var said warnings
	sink, err := NewMLflow(MLflow{URI: server.URL, Experiment: "e", About: &telemetry.About{}}, said.options())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sink.Take(step(1)), sink.Close()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(said.all(), "\n"); asked == 0 || !strings.Contains(got, "does not name a run") || !strings.Contains(got, "1 entries of iterations 1 to 1 could not be sent") {
		t.Errorf("%d calls; %s", asked, got)
	}
}

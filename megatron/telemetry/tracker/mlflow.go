package tracker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"monotron/megatron/telemetry"
)

// MLflow says which run of which server a run is sent to.
type MLflow struct {
	URI        string // of the tracking server
	Experiment string // its name
	About      *telemetry.About
	Save       string // absolute path of --save, by which a resumed run finds its own; "": it never does
}

// Limits of MLflow's REST API.
const (
	mostParts   = 1000 // metrics, parameters and tags of a call together
	mostParams  = 100
	mostTags    = 100
	longestText = 5000 // of a parameter or tag; 6000 is the server's
)

// saveTag is the tag by which a resumed run finds its own.
const saveTag = "monotron.save"

// mlflow is a sink.
type mlflow struct {
	*sender
	MLflow
	rest rest
	run  string // id; "": not begun
	said bool   // the run's flags have been sent
	last int    // iteration
	goal int
}

type pair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type metric struct {
	Key       string  `json:"key"`
	Value     float64 `json:"value"`
	Timestamp int64   `json:"timestamp"` // milliseconds
	Step      int     `json:"step"`
}

type batch struct {
	Run     string   `json:"run_id"`
	Metrics []metric `json:"metrics,omitempty"`
	Params  []pair   `json:"params,omitempty"`
	Tags    []pair   `json:"tags,omitempty"`
}

// tag sets a tag, which a call may name once.
func (b *batch) tag(name, text string) {
	p := pair{key(name), clip(text)}
	if i := slices.IndexFunc(b.Tags, func(t pair) bool { return t.Key == p.Key }); i >= 0 {
		b.Tags[i] = p
		return
	}
	b.Tags = append(b.Tags, p)
}

// NewMLflow is a sink that sends to an MLflow server, whether or not it answers now. MLFLOW_TRACKING_TOKEN, or
// MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, say who asks.
func NewMLflow(m MLflow, o Options) (telemetry.Sink, error) {
	uri, err := base("--mlflow-tracking-uri", m.URI)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	if token := os.Getenv("MLFLOW_TRACKING_TOKEN"); token != "" {
		header.Set("Authorization", "Bearer "+token)
	} else if user := os.Getenv("MLFLOW_TRACKING_USERNAME"); user != "" {
		named := &http.Request{Header: header}
		named.SetBasicAuth(user, os.Getenv("MLFLOW_TRACKING_PASSWORD"))
	}
	sink := &mlflow{MLflow: m, rest: rest{base: uri + "/api/2.0/mlflow/", client: &http.Client{}, header: header}}
	sink.sender = newSender("--mlflow-tracking-uri "+uri, o, sink.deliverTo)
	return sink, nil
}

// Take also keeps how far the run is.
func (m *mlflow) Take(s *telemetry.Step) error {
	m.last, m.goal = s.Iteration, max(m.goal, s.TrainIters)
	return m.sender.Take(s)
}

// Close sends what waits, and how the run ended.
func (m *mlflow) Close() error {
	err := m.sender.Close()
	if m.run == "" {
		return err
	}
	status := "KILLED" // stopped before its end
	if m.last >= m.goal {
		status = "FINISHED"
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.AtEnd)
	defer cancel()
	if failed := m.rest.call(ctx, http.MethodPost, "runs/update", map[string]any{"run_id": m.run, "status": status, "end_time": time.Now().UnixMilli()}, nil); failed != nil {
		m.Warn("%s: the end of the run could not be sent: %v", m.name, failed)
	}
	return err
}

// deliverTo begins the run where that has not been done, and sends a list. What the server refuses for good is dropped.
func (m *mlflow) deliverTo(ctx context.Context, list []entry) error {
	if m.run == "" {
		if err := m.begin(ctx, list[0].iteration); err != nil {
			return err
		}
	}
	if !m.said {
		if err := m.params(ctx); err != nil {
			return err
		}
		m.said = true
	}
	for _, b := range m.batches(list) {
		err := m.rest.call(ctx, http.MethodPost, "runs/log-batch", b, nil)
		if final(err) {
			m.Warn("%s: the server refuses %d numbers: %v", m.name, len(b.Metrics), err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// batches are a list as calls of log-batch, which are safe to repeat.
func (m *mlflow) batches(list []entry) (all []batch) {
	b := batch{Run: m.run}
	flush := func() {
		if len(b.Metrics)+len(b.Tags) > 0 {
			all, b = append(all, b), batch{Run: m.run}
		}
	}
	tag := func(name, text string) {
		if len(b.Tags) == mostTags {
			flush()
		}
		b.tag(name, text)
	}
	for _, e := range list {
		for _, c := range e.curves {
			if math.IsNaN(c.Value) || math.IsInf(c.Value, 0) {
				continue // JSON has no such number
			}
			if len(b.Metrics) == mostParts-mostTags {
				flush()
			}
			b.Metrics = append(b.Metrics, metric{key(c.Tag), c.Value, e.at.UnixMilli(), e.iteration})
		}
		for i, w := range e.written {
			tag(fmt.Sprintf("sample %d", i+1), w.Text)
		}
		for _, a := range e.alerts {
			tag("alert "+a.Kind, a.Text)
		}
	}
	flush()
	return all
}

// begin makes the run, or finds the one that a resumed run continues with.
func (m *mlflow) begin(ctx context.Context, iteration int) error {
	experiment, err := m.experiment(ctx)
	if err != nil {
		return err
	}
	id := ""
	if iteration > 1 && m.Save != "" {
		if id, err = m.earlier(ctx, experiment); err != nil {
			return err
		}
	}
	if id == "" {
		if id, err = m.create(ctx, experiment); err != nil {
			return err
		}
	} else if err = m.rest.call(ctx, http.MethodPost, "runs/update", map[string]any{"run_id": id, "status": "RUNNING"}, nil); err != nil {
		return err
	}
	if id == "" { // numbers without a run would be lost, and counted as sent
		return errors.New("the answer to runs/create does not name a run; give the URL of an MLflow server")
	}
	m.run = id
	return nil
}

// experiment finds the experiment by its name, or makes it.
func (m *mlflow) experiment(ctx context.Context) (id string, err error) {
	var found struct {
		Experiment struct {
			ID string `json:"experiment_id"`
		}
	}
	err = m.rest.call(ctx, http.MethodGet, "experiments/get-by-name?experiment_name="+url.QueryEscape(m.Experiment), nil, &found)
	var refused *refusal
	if !errors.As(err, &refused) || refused.status != http.StatusNotFound {
		return found.Experiment.ID, err
	}
	var made struct {
		ID string `json:"experiment_id"`
	}
	err = m.rest.call(ctx, http.MethodPost, "experiments/create", map[string]string{"name": m.Experiment}, &made)
	return made.ID, err
}

// earlier is the newest run that saves where this one does; "": there is none.
func (m *mlflow) earlier(ctx context.Context, experiment string) (string, error) {
	var found struct {
		Runs []struct {
			Info struct {
				ID string `json:"run_id"`
			}
		}
	}
	filter := "tags.`" + saveTag + "` = '" + strings.ReplaceAll(m.Save, "'", "") + "'"
	err := m.rest.call(ctx, http.MethodPost, "runs/search", map[string]any{"experiment_ids": []string{experiment}, "filter": filter, "max_results": 1, "order_by": []string{"attributes.start_time DESC"}}, &found)
	if err != nil || len(found.Runs) == 0 {
		return "", err
	}
	return found.Runs[0].Info.ID, nil
}

// create makes a run with its flags as parameters.
func (m *mlflow) create(ctx context.Context, experiment string) (string, error) {
	a := m.About
	tags := []pair{{"mlflow.note.content", clip(a.Notes)}, {"mlflow.source.name", "monotron"}, {"monotron.command", clip(strings.Join(a.Command, " "))},
		{saveTag, strings.ReplaceAll(m.Save, "'", "")}}
	for _, f := range a.Facts {
		tags = append(tags, pair{"monotron." + f.Label, clip(f.Text)})
	}
	var made struct {
		Run struct {
			Info struct {
				ID string `json:"run_id"`
			}
		}
	}
	err := m.rest.call(ctx, http.MethodPost, "runs/create", map[string]any{"experiment_id": experiment, "run_name": clip(a.Name), "start_time": a.Started.UnixMilli(), "tags": tags}, &made)
	return made.Run.Info.ID, err
}

// params sends the flags, which are safe to send again.
func (m *mlflow) params(ctx context.Context) error {
	for list := range slices.Chunk(m.About.Flags, mostParams) {
		b := batch{Run: m.run}
		for _, f := range list {
			b.Params = append(b.Params, pair{key(f.Name), clip(f.Value)})
		}
		err := m.rest.call(ctx, http.MethodPost, "runs/log-batch", b, nil)
		if final(err) { // a resumed run may have other flags than the run that it continues
			m.Warn("%s: the server refuses the flags: %v", m.name, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// key is a name that MLflow takes: letters, digits, and of the rest a few.
func key(name string) string {
	return strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-. /", r)) {
			return r
		}
		return '_'
	}, name)
}

// clip is the beginning of a text, as long as a tag may be.
func clip(text string) string {
	if len(text) <= longestText {
		return text
	}
	return strings.ToValidUTF8(text[:longestText-3], "") + "..."
}

package telemetry

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"monotron/internal/exitcode"
	"monotron/internal/web"
)

// Metrics serves the numbers of the latest step to Prometheus at /metrics.
type Metrics struct {
	server   *http.Server
	listener net.Listener
	gauges   map[string]prometheus.Gauge
	loss     *prometheus.GaugeVec
	phase    *prometheus.GaugeVec
	experts  *prometheus.GaugeVec
	skipped  prometheus.Counter

	preference *prometheus.GaugeVec
	straggler  *prometheus.GaugeVec
	slowest    *prometheus.GaugeVec
	alerts     *prometheus.CounterVec
}

var gaugeHelp = map[string]string{
	"iteration":         "latest training iteration",
	"consumed_samples":  "sequences trained on",
	"learning_rate":     "learning rate of the latest step",
	"global_batch_size": "sequences of the latest step",
	"loss_scale":        "loss scale",
	"grad_norm":         "global gradient norm before clipping",
	"step_seconds":      "duration of the latest step",
	"tokens_per_second": "tokens trained on per second",
	"tflops_per_device": "model TFLOP/s per device",
	"memory_bytes":      "peak of the device memory in use",
}

// ServeMetrics listens on addr (":9400") until Close. /health answers as long as the process does.
func ServeMetrics(addr, version string) (*Metrics, error) {
	listener, err := web.Listen(addr)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.Usage, "--metrics-addr %s: %w", addr, err)
	}
	registry := prometheus.NewRegistry()
	m := &Metrics{listener: listener, gauges: map[string]prometheus.Gauge{}}
	for name, help := range gaugeHelp {
		m.gauges[name] = prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "monotron", Name: name, Help: help})
		registry.MustRegister(m.gauges[name])
	}
	m.loss = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "monotron", Name: "loss", Help: "latest losses"}, []string{"name", "set"})
	m.preference = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "monotron", Name: "preference", Help: "rewards and log-probabilities of the latest rows of preference tuning, and the share of pairs that are ranked correctly"}, []string{"name", "set"})
	m.phase = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "monotron", Name: "phase_seconds", Help: "seconds of a phase in the latest step"}, []string{"phase"})
	m.skipped = prometheus.NewCounter(prometheus.CounterOpts{Namespace: "monotron", Name: "skipped_iterations_total", Help: "steps skipped for overflow"})
	m.straggler = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "monotron", Name: "straggler_score",
		Help: "lowest score of a rank's own work at the latest log line; a rank with score 1 is as fast as the fastest rank of its pipeline stage (against=others), or as fast as it was before (against=past)"}, []string{"against"})
	m.slowest = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "monotron", Name: "straggler_rank", Help: "the rank that has that score"}, []string{"against"})
	m.experts = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "monotron", Name: "experts",
		Help: "for a layer of experts in the latest step: min, max and std of the experts' tokens as multiples of an even share, the number of experts without tokens, dropped choices, and bytes between ranks"}, []string{"layer", "of"})
	m.alerts = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "monotron", Name: "alerts_total", Help: "alerts by kind"}, []string{"kind"})
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "monotron", Name: "build_info", Help: "always 1; the labels say which program this is"}, []string{"version", "go"})
	build.WithLabelValues(version, runtime.Version()).Set(1)
	registry.MustRegister(m.loss, m.preference, m.phase, m.straggler, m.slowest, m.experts, m.skipped, m.alerts, build)
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n") // who asked is gone, then
	})
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	m.server = web.NewServer(new(web.Guard).Wrap(mux), 0, time.Minute)
	go m.server.Serve(listener) // ends with Close
	return m, nil
}

// Addr is where it listens.
func (m *Metrics) Addr() string {
	address, _ := web.Reachable(m.listener.Addr())
	return address
}

// Take shows the numbers of a step, or the losses of an evaluation.
func (m *Metrics) Take(s *Step) error {
	set := s.Split
	if set == "" {
		set = "training"
	}
	for _, loss := range s.Losses {
		m.loss.WithLabelValues(loss.Name, set).Set(loss.Value)
	}
	for _, v := range s.Preference {
		m.preference.WithLabelValues(v.Name, set).Set(v.Value)
	}
	if s.Split == "" {
		m.training(s)
	}
	return nil
}

func (m *Metrics) training(s *Step) {
	// One value of the run.
	for name, value := range map[string]float64{
		"iteration": float64(s.Iteration), "consumed_samples": float64(s.ConsumedSamples), "learning_rate": s.LearningRate,
		"global_batch_size": float64(s.GlobalBatchSize), "loss_scale": s.LossScale, "step_seconds": s.Elapsed.Seconds(),
		"tokens_per_second": s.perSecond(s.Tokens), "tflops_per_device": s.TFLOPs(), "memory_bytes": float64(s.Memory.MaxAllocated),
	} {
		m.gauges[name].Set(value)
	}
	if s.GradNorm != nil {
		m.gauges["grad_norm"].Set(*s.GradNorm)
	}
	// Values by phase, loss, layer and kind.
	for phase, seconds := range phases(s) {
		m.phase.WithLabelValues(phase).Set(float64(seconds))
	}
	for _, loss := range s.MoE {
		m.loss.WithLabelValues(loss.Name, "training").Set(loss.Value)
	}
	for _, b := range balances(s) {
		for of, value := range map[string]Number{"min": b.Least, "max": b.Most, "std": b.Spread, "starved": Number(len(b.Starved)), "dropped": b.Dropped, "bytes": b.Bytes} {
			m.experts.WithLabelValues(strconv.Itoa(b.Layer), of).Set(float64(value))
		}
	}
	if s.Line != nil && s.Line.Scores != nil {
		for against, scores := range map[string][]float64{"others": s.Line.Scores.Others, "past": s.Line.Scores.Past} {
			rank, score := lowest(scores)
			m.straggler.WithLabelValues(against).Set(score)
			m.slowest.WithLabelValues(against).Set(float64(rank))
		}
	}
	for _, a := range s.Alerts {
		m.alerts.WithLabelValues(a.Kind).Inc()
	}
	if s.Skipped {
		m.skipped.Inc()
	}
}

// Close stops serving; a request under way has a second to end.
func (m *Metrics) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return m.server.Shutdown(ctx)
}

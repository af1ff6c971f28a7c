package serve

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"monotron/megatron/inference"
)

// prefixOf is before every name; what follows are vLLM's, so that its dashboards work.
const prefixOf = "monotron"

// metrics is what /metrics shows.
type metrics struct {
	registry                 *prometheus.Registry
	labels                   prometheus.Labels
	success                  *prometheus.CounterVec
	rows                     prometheus.Histogram
	first, between, complete prometheus.Histogram
	queued, prefill, decode  prometheus.Histogram
}

func newMetrics(model string) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), labels: prometheus.Labels{"model_name": model}}
	seconds := []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefixOf + ":" + name, Help: help, ConstLabels: m.labels, Buckets: buckets})
		m.registry.MustRegister(h)
		return h
	}
	m.first = histogram("time_to_first_token_seconds", "Time from the arrival of a text to its first token.", seconds)
	m.between = histogram("inter_token_latency_seconds", "Time between two tokens of a text.", seconds)
	m.complete = histogram("e2e_request_latency_seconds", "Time from the arrival of a text to its end.", seconds)
	m.queued = histogram("request_queue_time_seconds", "Time that a text waited before it began.", seconds)
	m.prefill = histogram("request_prefill_time_seconds", "Time from the beginning of a text to its first token.", seconds)
	m.decode = histogram("request_decode_time_seconds", "Time from the first token of a text to its end.", seconds)
	m.rows = histogram("iteration_tokens_total", "Tokens that are computed in one forward pass.", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096})
	m.success = prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefixOf + ":request_success_total", Help: "Texts that ended, by reason.", ConstLabels: m.labels}, []string{"finished_reason"})
	m.registry.MustRegister(m.success)
	return m
}

// watch shows what the batcher counts.
func (m *metrics) watch(b *inference.Batcher) {
	gauge := func(name, help string, value func(inference.Stats) float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefixOf + ":" + name, Help: help, ConstLabels: m.labels}, func() float64 { return value(b.Stats()) }))
	}
	counter := func(name, help string, value func(inference.Stats) float64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: prefixOf + ":" + name, Help: help, ConstLabels: m.labels}, func() float64 { return value(b.Stats()) }))
	}
	gauge("num_requests_running", "Texts that are being continued.", func(s inference.Stats) float64 { return float64(s.Running) })
	gauge("num_requests_waiting", "Texts that wait.", func(s inference.Stats) float64 { return float64(s.Waiting) })
	gauge("kv_cache_usage_perc", "Fraction of the blocks of keys and values that is in use.", func(s inference.Stats) float64 { return 1 - float64(s.FreeBlocks)/float64(s.Blocks) })
	counter("prefix_cache_queries", "Tokens of prompts searched in the prefix cache.", func(s inference.Stats) float64 { return float64(s.PrefixAsked) })
	counter("prefix_cache_hits", "Tokens found in the prefix cache.", func(s inference.Stats) float64 { return float64(s.PrefixHit) })
	counter("num_preemptions_total", "Sequences preempted for lack of cache blocks.", func(s inference.Stats) float64 { return float64(s.Preemptions) })
	counter("prompt_tokens_total", "Tokens of prompts that were computed.", func(s inference.Stats) float64 { return float64(s.PromptTokens) })
	counter("generation_tokens_total", "Tokens that were generated.", func(s inference.Stats) float64 { return float64(s.GeneratedTokens) })
}

func (m *metrics) stepped(rows int) { m.rows.Observe(float64(rows)) }

// ended takes a text that has ended, with all its tokens.
func (m *metrics) ended(r inference.Result) {
	if r.Ended == "" {
		return
	}
	m.success.WithLabelValues(string(r.Ended)).Inc()
	t := r.Times
	since := func(h prometheus.Histogram, from, to time.Time) {
		if !from.IsZero() && !to.IsZero() {
			h.Observe(to.Sub(from).Seconds())
		}
	}
	since(m.first, t.Came, t.First)
	since(m.complete, t.Came, t.Ended)
	since(m.queued, t.Came, t.Began)
	since(m.prefill, t.Began, t.First)
	since(m.decode, t.First, t.Ended)
	for i := 1; i < len(r.Tokens); i++ {
		m.between.Observe(r.Tokens[i].At.Sub(r.Tokens[i-1].At).Seconds())
	}
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

package tracker

import (
	"context"
	"errors"
	"math"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"

	"monotron/internal/exitcode"
	"monotron/megatron/telemetry"
)

// otlp is a sink.
type otlp struct {
	*sender
	exporter *otlpmetrichttp.Exporter
	resource *resource.Resource
}

// NewOTLP is a sink that sends gauges to an OpenTelemetry collector, whether or not it answers now: one a
// number under Megatron's names, its points at the times of the steps. The OTEL_EXPORTER_OTLP variables of
// the environment hold as in every program with OpenTelemetry's SDK (headers, certificates).
func NewOTLP(endpoint string, a *telemetry.About, o Options) (telemetry.Sink, error) {
	text, err := base("--otlp-endpoint", endpoint)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, exitcode.With(exitcode.Usage, err)
	}
	if u.Path == "" {
		u.Path = "/v1/metrics"
	}
	// The queue repeats what fails; the exporter's own repetitions would only delay that.
	exporter, err := otlpmetrichttp.New(context.Background(), otlpmetrichttp.WithEndpointURL(u.String()), otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{}))
	if err != nil {
		return nil, exitcode.Errorf(exitcode.Usage, "--otlp-endpoint %s: %w", endpoint, err)
	}
	attributes := []attribute.KeyValue{attribute.String("service.name", "monotron"), attribute.String("service.version", a.Version), attribute.String("run.name", a.Name)}
	for _, f := range a.Facts {
		attributes = append(attributes, attribute.String("run."+f.Label, f.Text))
	}
	sink := &otlp{exporter: exporter, resource: resource.NewSchemaless(attributes...)}
	sink.sender = newSender("--otlp-endpoint "+text, o, sink.deliverTo)
	return sink, nil
}

// deliverTo sends a list as one request.
func (o *otlp) deliverTo(ctx context.Context, list []entry) error {
	points, order := map[string][]metricdata.DataPoint[float64]{}, []string{}
	for _, e := range list {
		for _, c := range append(e.curves, telemetry.Curve{Tag: "iteration", Value: float64(e.iteration)}) {
			if math.IsNaN(c.Value) || math.IsInf(c.Value, 0) {
				continue
			}
			name := strings.ReplaceAll(c.Tag, " ", "-") // instruments have no spaces in their names
			if points[name] == nil {
				order = append(order, name)
			}
			points[name] = append(points[name], metricdata.DataPoint[float64]{Time: e.at, Value: c.Value})
		}
	}
	scope := metricdata.ScopeMetrics{Scope: instrumentation.Scope{Name: "monotron"}}
	for _, name := range order {
		scope.Metrics = append(scope.Metrics, metricdata.Metrics{Name: name, Data: metricdata.Gauge[float64]{DataPoints: points[name]}})
	}
	return o.exporter.Export(ctx, &metricdata.ResourceMetrics{Resource: o.resource, ScopeMetrics: []metricdata.ScopeMetrics{scope}})
}

// Close sends what waits.
func (o *otlp) Close() error {
	err := o.sender.Close()
	ctx, cancel := context.WithTimeout(context.Background(), o.AtEnd)
	defer cancel()
	return errors.Join(err, exitcode.With(exitcode.IO, o.exporter.Shutdown(ctx)))
}

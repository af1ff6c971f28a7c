// Package tracker sends a run's numbers to programs that keep experiments: MLflow by its REST
// API, OpenTelemetry collectors by OTLP over HTTP. A server that is slow or gone never delays
// a step: what is sent waits in a queue of limited length, and what does not fit is counted.
//
// Reading order: sender.go (the queue), mlflow.go with rest.go, otlp.go.
package tracker

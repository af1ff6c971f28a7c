// Package telemetry reports what a run does. Training makes one Step a training step or
// evaluation; each Sink takes from it what it shows: Megatron's log lines letter for
// letter, JSON lines, TensorBoard event files, Prometheus, a Chrome trace. A sink is a
// file here, and a line where training opens it.
//
// Reading order: step.go (the record, and what a sink is), line.go with window.go (the
// log line, and what it averages), memory.go and timers.go (what is printed with it),
// jsonl.go with about.go (what the run is), events.go with proto.go (TensorBoard), metrics.go (Prometheus), trace.go,
// alert.go (what a person should check) with work.go and disk.go, alertcommand.go.
// Also: progress.go (a bar for people).
package telemetry

// Package bench is the commands bench and measure: this machine's peak, then the training
// step as a fraction of it, in one run.
//
// Reading order: bench.go (flags), measure.go (what is timed), peak.go (the
// machine), library.go, step.go (the training step), shared.go (what others take of the cores), print.go (what is told), start.go,
// ladder.go (what each of a GPU's means brings); layouts.go (the step cut over ranks),
// comm.go (collectives), data.go (the data path). Servers are measured by serving.
// machine.go is the command measure, which writes what machine_ops.go and machine_links.go
// time as a machine file for plans.
package bench

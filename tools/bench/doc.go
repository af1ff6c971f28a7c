// Package bench is the command bench: this machine's peak, then the training step as a fraction of it, in one run.
//
// Reading order: bench.go (flags), measure.go (what is timed, and in which order), peak.go (the
// machine), library.go (the matrix library's part of it), step.go (the training step), shared.go
// (what others take of the cores), process.go (what the kernel says of this process), marks.go
// (ops below what they could be), print.go (the output). Then the other words behind bench:
// start.go, cores.go, ladder.go (what each of a GPU's means brings), layouts.go (the step cut over ranks),
// contexts.go (a sequence cut over ranks), experts.go (the step of a mixture), comm.go
// (collectives), data.go (the data path), plans.go (the planner). Servers are measured by serving.
package bench

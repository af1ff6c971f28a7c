// Package bench is the commands bench and measure: this machine's peak, then the training
// step as a fraction of it, in one run.
//
// Reading order: bench.go (flags), measure.go (what is timed, and in which order), peak.go (the
// machine), library.go (the matrix library's part of it), step.go (the training step), shared.go
// (what others take of the cores), process.go (what the kernel says of this process), marks.go
// (ops below what they could be), print.go (what is told). Then the other words behind bench:
// start.go, ladder.go (what each of a GPU's means brings), layouts.go (the step cut over ranks),
// contexts.go (a sequence cut over ranks), experts.go (the step of a mixture), comm.go
// (collectives), data.go (the data path), plans.go (the planner). Processes that they start end with them (children.go).
// Servers are measured by serving. machine.go is the command measure, which writes what
// machine_ops.go and machine_links.go time as a machine file for plans, and machine_cores.go looks at
// how far cores are apart.
package bench

// Package plan is the command `monotron plan`: what a run will do and take, before anything
// is launched.
//
// Reading order: command.go (which plans there are), run.go (one training command: memory, and seconds on a
// machine), report.go (what is printed of it), table.go (many layouts of a file), regime.go (fitting a machine
// to them, and judging what is predicted), search.go (the fastest layouts that fit), formulas.go (the
// literature's rules), schedule.go (a pipeline drawn; package timeline draws), ring.go (the work of ranks
// that share sequences).
package plan

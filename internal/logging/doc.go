// Package logging is what a run writes for people, apart from Megatron's lines: a line a
// note on stderr, in colour on a terminal, or an object a note for machines
// (--log-format json). A note has a level, and where they are known the component
// that speaks, its rank and the training step.
//
// Stderr is the process's own; main prints the error that ends the program by it.
// What runs in a process is handed the Notes that it speaks through.
//
// Reading order: logging.go, format.go (the form of a note), record.go (what ends the
// program, and what a launcher leaves as it is).
package logging

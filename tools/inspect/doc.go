// Package inspect is the command inspect: what is in a file, and whether it
// holds together. Each subcommand has a file of its own.
//
// Reading order: inspect.go, then dataset.go, samples.go, checkpoint.go with foreign.go (how
// other programs' files cut a tensor).
package inspect

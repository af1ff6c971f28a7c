// Package inproc is the engine of ranks that are goroutines of one process: who comes
// last to a collective moves everybody's bytes.
//
// Reading order: world.go (where ranks meet and how they fail), rounds.go (collectives),
// exchange.go (point to point), standstill.go (ranks that wait for each other), bench.go.
//
// Who sees a failure: a round sees ranks that differ; the World sees a rank that has ended,
// one that stays away longer than Timeout, and a standstill, at the moment the last one
// goes to sleep. All ranks get the first failure, by Wait or by their next call.
package inproc

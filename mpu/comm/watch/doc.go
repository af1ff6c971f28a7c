// Package watch knows what every rank is at, and says in one verdict why a run
// does not go on.
//
// A Recorder belongs to one rank: it is told of phases, and wraps the rank's
// groups, so that it sees every collective whatever carries the bytes. The last
// thousand are kept in memory that may be a file, which outlives a rank that is
// killed. Once a second a rank's beat goes to the Watcher: straight, where ranks are
// goroutines, over TCP beside the collectives, where they are processes.
//
// What holds: a beat never waits for a collective; a broken beat connection does not
// disturb the run; nothing is decided from one rank alone, and at most one verdict is
// made. A rank that computes, or would if others let it, or moves bytes is busy, not
// stalled, however long.
//
// Reading order: phase.go, recorder.go (what a rank keeps), group.go (how
// collectives get there), flight.go (the same as a file), beat.go (what is told),
// diagnose.go (from beats to a verdict), verdict.go, watcher.go, wire.go, server.go,
// beater.go.
package watch

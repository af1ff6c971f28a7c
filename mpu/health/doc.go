// Package health knows what every rank is at, and says in one verdict why a run
// does not continue.
//
// A Recorder belongs to one rank: it is told of phases, and wraps the rank's
// groups, so that it sees every collective whatever carries the bytes. The last
// thousand are kept in memory that may be a file, which outlives a rank that is
// killed. Once a second a rank's beat goes to the Watcher: straight, where ranks are
// goroutines, in the beats of the rendezvous, where they are processes.
//
// What holds: a beat never waits for a collective; nothing is decided from one rank
// alone, and at most one verdict is made. A rank that computes, or would if others let
// it, or moves bytes is busy, not stalled, however long; on a GPU what that has done counts,
// for who waits for it keeps a processor.
//
// Who sees a failure, who decides what it is, who writes that down:
//
//	death       rank 0's rendezvous (the connection ends); launch (the process's state), which knows best and writes
//	silence     rank 0's rendezvous (no beat for Config.Silence), where rank 0 itself is silent every rank; where none of
//	            them can, launch (a process that is stopped)
//	stall       the Watcher, from all ranks' beats (diagnose.go)
//	mismatch    the engine of a group (comm.Mismatch); the Watcher, from all ranks' last calls, who differs
//	            (blame.go); from beats, where ranks wait for each other (diagnose.go)
//	non-finite  the step; all ranks together where; rank 0 writes
//	error       the rank; the rendezvous, whose was first
//	elsewhere   the rank that gives up because of another; the Watcher, whose failure it was
//
// What is decided is a failure.Verdict. Rank 0 writes it into the run's folder, the
// launcher where rank 0 cannot.
//
// Reading order: phase.go, recorder.go (what a rank keeps), account.go (what its time goes to), group.go (how
// collectives get there), behind.go (what a device does behind the host's back), flight.go (the same as a
// file), beat.go and message.go (what is told), numbers.go (lists of ranks in short), beater.go (by whom),
// busy.go (whether a process works), watcher.go (who hears), diagnose.go (from beats to a verdict), blame.go
// (who differs), straggler.go, timeouts.go (who is slow), postmortem.go, folder.go.
package health

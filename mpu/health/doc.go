// Package health records what every rank is doing, and makes the one verdict that says
// why a run ended.
//
// A Recorder belongs to one rank. The rank reports its phases to it, and it wraps the
// rank's groups, so that it sees every collective, whatever carries the bytes. The last
// thousand are kept in memory that may be a mapped file, which survives a rank that is
// killed. Once a second the rank sends a heartbeat (Beat) to the Watcher: by a call if
// ranks are goroutines, over the connections of the rendezvous if they are
// processes, those of a host by one.
//
// Rules: a heartbeat never waits for a collective. Nothing is decided from one rank
// alone, and at most one verdict is made. A rank that computes, waits for a processor that
// other programs use, or moves bytes is busy, not stalled, however long that takes. For a
// rank with a GPU the GPU's progress counts, since waiting for a GPU keeps a processor busy.
//
// Who detects a failure, who decides what it is, who writes the verdict:
//
//	death       rank 0's rendezvous (the connection ends); launch (the process's state), which knows most, and writes
//	silence     rank 0's rendezvous (no heartbeat for Config.Silence); if rank 0, or the rank that relays, is silent, those that it is connected with; if none of
//	            them can, launch (a process that is stopped)
//	stall       the Watcher, from all ranks' heartbeats (diagnose.go)
//	mismatch    the engine of a group (comm.Mismatch); the Watcher decides which rank differs, from all ranks' last
//	            calls (blame.go) or, if ranks wait for each other, from heartbeats (diagnose.go)
//	non-finite  the step; all ranks together find the layer; rank 0 writes
//	error       the rank; the rendezvous decides whose error was first
//	other rank  the rank that gives up because another failed; the Watcher decides which one that was
//
// The decision is a failure.Verdict. Rank 0 writes it to the run's folder, or the
// launcher if rank 0 cannot.
//
// Reading order: phase.go, recorder.go (what a rank keeps), account.go (its time by phase), group.go (how
// collectives are recorded), behind.go (progress of a GPU that runs behind the host), flight.go (the record as
// a file), beat.go, message.go and fields.go (what a heartbeat contains, and its bytes), numbers.go (lists of ranks in short), beater.go
// (sends heartbeats), busy.go (whether a process works), watcher.go (receives them), diagnose.go (from
// heartbeats to a verdict), blame.go (which rank differs), straggler.go and timeouts.go (which rank is slow),
// postmortem.go, folder.go.
package health

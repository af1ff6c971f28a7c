// Package launch is the command launch: it starts the ranks of a run as processes
// and says in one message why a run has ended.
//
// Reading order: launch.go (flags), run.go (one attempt after another), ranks.go (one attempt), death.go (how
// a process ended), memory.go (whether for lack of memory), stopped.go, lines.go (what ranks print),
// hostfile.go, ssh.go and agent.go (other hosts), staying.go (where their launchers stay), gather.go with meet.go, enough.go,
// session.go, claim.go, lost.go and shrink.go (starting again without hosts that are gone), spare.go (hosts that replace them), memorycheckpoint.go (memory that
// outlives ranks), storage.go and stale.go (before a start).
package launch

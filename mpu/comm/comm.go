// Package comm is how ranks talk. A rank owns its Groups and passes them to
// whatever needs them; nothing here is global. Order of a group's sums is rank
// order, so that a run repeats bit for bit.
//
// Reading order: collective.go (what ranks do together, as a value), group.go (the
// calls and their one check), solo.go (one rank), world.go (ranks
// that are goroutines of one process: where they meet and how they fail),
// rounds.go (collectives), exchange.go (point to point), carry.go (who moves and
// sums the bytes), standstill.go (ranks that wait for each other). Ranks that are
// processes: process.go, processgroup.go, transit.go, links.go, and roads.go (shared
// memory, Gloo, TCP). Ranks on GPUs: carrier.go, then nccl.go or staged.go.
package comm

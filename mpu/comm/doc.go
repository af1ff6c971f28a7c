// Package comm is how ranks talk. A rank owns its Groups and passes them to
// whatever needs them; nothing here is global. What ranks do together is a value, a
// Collective; a Group has the calls and the one check of their tensors; an Engine, with
// one method, carries them out:
//
//	inproc     ranks that are goroutines of one process
//	processes  ranks that are processes, over shared memory, Gloo or TCP
//	gpu        ranks with a GPU each, over NCCL
//
// Who chooses: Run in mpu/ranks/ranks.go, whether ranks are goroutines or processes; Carry
// in mpu/comm/nccl/carrier.go, of processes, whether NCCL carries their tensors; links.offer
// in mpu/comm/process/transport.go, what carries bytes between two processes.
//
// What records (watch), breaks (inject) or stages through the host's memory (Staged) is an
// engine over another. Sums are made in rank order by inproc and processes (package
// sums), so that a run repeats bit for bit; NCCL has an order of its own.
//
// Reading order: collective.go (what ranks do together), group.go (the calls and their check), solo.go (one
// rank), imagined.go (one without the others, for plans), ledger.go (a call as ledgers and errors know it;
// ranks that differ), stage.go (tensors that the host cannot touch), carrier.go (what carries a rank's
// tensors), words.go. Then the engines, each from its doc.go.
//
// Who sees a failure: a tensor that cannot be meant panics in Group.Start, for it is a bug
// of one rank. Ranks that differ are seen by the engine whose bytes meet, as a Mismatch. A
// rank that is lost, or stays away, is seen by the engine's world. Either ends the world:
// every Wait gives the same error from then on. Package watch makes the verdict.
package comm
